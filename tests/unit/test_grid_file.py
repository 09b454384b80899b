"""Grid files: the runs they describe, and the errors for invalid ones."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_sweep import SMALL

from walkback.core.configuration import grid
from walkback.core.errors import InputError
from walkback.sweeping import sweep
from walkback.sweeping.grid_file import parse_grid, read_grid


class TestGridFile:
    def test_the_runs_are_all_combinations_of_the_lists(self):
        configs = parse_grid("""
            methods: [bp, fa, "dfa:scale=unit_error,site=input"]
            arch: [resmlp, "resmlp:d=512,depth=2"]
            data: cifar10
            seeds: [42, 123, 456]
            epochs: 100
            settings: {lr: [1e-3, 3e-4], augment: crop_flip_black}
        """).configs()
        assert len(configs) == 3 * 2 * 3 * 2
        wanted = itertools.product(
            ["bp", "fa", "dfa:scale=unit_error,site=input"],
            ["resmlp", "resmlp:d=512,depth=2"],
            [42, 123, 456],
            [1e-3, 3e-4],
        )
        assert {(str(c.method), str(c.arch), c.seed, c.lr) for c in configs} == set(wanted)
        assert {(str(c.data), c.epochs, c.augment) for c in configs} == {("cifar10", 100, "crop_flip_black")}

    def test_precision_is_a_setting_and_may_be_a_list(self):
        assert parse_grid("methods: bp\nsettings: {dtype: tf32}").configs() == grid("bp", dtype="tf32")
        found = parse_grid("methods: bp\nsettings: {dtype: [float32, tf32]}").configs()
        assert [config.dtype for config in found] == ["float32", "tf32"]
        with pytest.raises(InputError, match="Unknown dtype of the run 'fp32'"):
            parse_grid("methods: bp\nsettings: {dtype: fp32}").configs()

    def test_missing_keys_have_the_defaults_of_train(self):
        assert parse_grid("methods: bp").configs() == grid("bp")

    @given(
        methods=st.lists(st.sampled_from(["bp", "fa", "dfa"]), min_size=1, unique=True),
        seeds=st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True),
        rates=st.lists(st.sampled_from([0.1, 0.01, 0.001]), min_size=1, unique=True),
    )
    def test_the_number_of_runs_is_the_product(self, methods, seeds, rates):
        text = json.dumps({"methods": methods, "seeds": seeds, "settings": {"lr": rates}})
        configs = parse_grid(text).configs()
        assert len(configs) == len({c.digest() for c in configs}) == len(methods) * len(seeds) * len(rates)

    def test_baselines_add_the_frozen_baselines_and_backprop_once(self):
        resolved_runs = sweep.runs_of_grid(parse_grid(f"methods: [fa, dfa]\nbaselines: true\n{SMALL}"))
        assert [resolved.method for resolved in resolved_runs] == [
            "fa",
            "dfa",
            "fa:shell=method",
            "bp:shell=bp",
            "bp",
            "dfa:shell=method",
        ]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("method: [bp]", "Unknown key 'method'. Did you mean 'methods'?"),
            ("arch: resmlp", "The key 'methods' is missing"),
            ("methods: 3", "'methods' has 3; expected text"),
            ("methods: [bp, no]", "'methods' has False; expected text"),
            ("methods: bp\nseeds: [1, two]", "'seeds' has 'two'; expected a whole number"),
            ("methods: bp\nseeds: 1.5", "'seeds' has 1.5; expected a whole number"),
            ("methods: bp\nepochs: many", "'epochs' has 'many'; expected a whole number"),
            ("methods: bp\nseeds: []", "'seeds' is an empty list"),
            ("methods: bp\nsettings: {lrr: 1}", "Unknown key of 'settings' 'lrr'. Did you mean 'lr'?"),
            ("methods: bp\nsettings: {seed: 1}", "write the key 'seeds' beside"),
            ("methods: bp\nsettings: {baselines: true}", "write the key 'baselines' beside"),
            ("methods: bp\nsettings: {lr: {a: 1}}", "'settings.lr' has {'a': 1}"),
            ("methods: bp\nsettings: [lr]", "'settings' is ['lr']"),
            ("methods: bp\nbaselines: 1", "'baselines' is 1; expected true or false"),
            ("methods: bp\nmethods: fa", "the key 'methods' is given twice"),
            ("- bp", "Keys: methods, arch"),
            ("", "Keys: methods, arch"),
        ],
    )
    def test_errors_name_the_key(self, text, words):
        with pytest.raises(InputError) as caught:
            parse_grid(text).configs()
        assert words in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("methods: [bp", "is not YAML"),
            ("methods: !!python/object:os.system x", "is not YAML"),
            ("methods: bp\nx: 1", "Unknown key 'x'"),
        ],
    )
    def test_errors_name_the_file(self, tmp_path, text, words):
        path = tmp_path / "grid.yaml"
        path.write_text(text)
        with pytest.raises(InputError, match=r"grid\.yaml") as caught:
            read_grid(path)
        assert words in str(caught.value)

    def test_unreadable_files_are_refused(self, tmp_path):
        with pytest.raises(InputError, match="Could not read"):
            read_grid(tmp_path / "none.yaml")
        (tmp_path / "picture").write_bytes(b"\x89\xff\xfe")
        with pytest.raises(InputError, match="is not UTF-8 text"):
            read_grid(tmp_path / "picture")
