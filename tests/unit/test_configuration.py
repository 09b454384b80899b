"""The configuration: its JSON form, its digest, and how a method's settings are filled in."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
from walkback.core.configuration import PARTS, RunConfig, SharedOptions, grid
from walkback.core.errors import InputError
from walkback.core.settings import Spec, all_settings
from walkback.credit import RULES
from walkback.nets import ARCHS
from walkback.training.resolved_run import resolve

WORDS = st.text("abcdef_", min_size=1, max_size=3)
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
CHOICES = st.builds(Spec, WORDS, st.dictionaries(WORDS, SCALARS, max_size=2))
CONFIGS = st.builds(
    RunConfig,
    method=CHOICES,
    arch=CHOICES,
    data=CHOICES,
    seed=st.integers(0),
    epochs=st.integers(1),
    batch=st.integers(1),
    lr=st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False),
    weight_decay=st.floats(0, allow_nan=False, allow_infinity=False),
    augment=st.sampled_from(typing.get_args(typing.get_type_hints(RunConfig)["augment"])),
    dtype=st.sampled_from(typing.get_args(typing.get_type_hints(RunConfig)["dtype"])),
)

unhurried = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def other(value, hint):
    """A value of the same type that is not `value`."""
    if typing.get_origin(hint) is typing.Literal:
        return next(spec for spec in typing.get_args(hint) if spec != value)
    if isinstance(value, bool):
        return not value
    return value * 2 + 1


def digest(method="bp", **settings):
    return tiny.resolved(method, **settings).config.digest()


@unhurried
@given(CONFIGS)
def test_a_configuration_survives_json(config):
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@unhurried
@given(CONFIGS, st.sampled_from([f.name for f in fields(RunConfig) if f.name not in PARTS]))
def test_the_digest_changes_with_every_field(config, name):
    hint = typing.get_type_hints(RunConfig)[name]
    value = getattr(config, name)
    assert replace(config, **{name: other(value, hint)}).digest() != config.digest()


def test_the_digests_are_those_of_before_there_was_a_third_dtype():
    """Runs that were trained then are found and resumed now."""
    before = {
        "float32": "2acc6e8e98609ad2e75d0433a9b546f348e9a6d4ac9b913fabff468bbf8ecc3b",
        "float64": "e04d4ab2418a1ebf0782b62f9b0021e391840fc8ad97b1222537001915562575",
    }
    assert RunConfig().digest() == before["float32"]
    assert {dtype: RunConfig(dtype=dtype).digest() for dtype in before} == before


@pytest.mark.parametrize("part", PARTS)
def test_the_digest_changes_with_every_part(part):
    base = RunConfig()
    spec = getattr(base, part)
    renamed = replace(base, **{part: Spec("other", spec.settings)})
    set_up = replace(base, **{part: Spec(spec.name, {"depth": 9})})
    assert len({base.digest(), renamed.digest(), set_up.digest()}) == 3


SMALLER = {"eta": 0.25}
"""Where the next larger value is out of bounds."""


@pytest.mark.parametrize("name", RULES.names())
def test_the_digest_changes_with_every_setting_of_a_method(name):
    base = digest(name)
    rule = RULES.get(name)
    for cls in (rule, SharedOptions):
        for key, value in all_settings(cls()).items():
            new = other(value, typing.get_type_hints(cls)[key])
            if key == "shell":
                new = "bp" if name == "bp" else "method"
            if key == "site" and new not in rule.sites:
                continue
            new = SMALLER.get(key, new)
            if key == "credit_tokens":  # Chosen where there are tokens only.
                on = {"arch": tiny.arch("vit_mini")}
                assert digest(f"{name}:{key}={new}", **on) != digest(name, **on), key
                continue
            assert digest(f"{name}:{key}={new}") != base, key


@pytest.mark.parametrize("name", ARCHS.names())
def test_the_digest_changes_with_every_setting_of_a_network(name):
    base = tiny.resolved(arch=name)
    cls = ARCHS.get(name)
    shape = {"input_shape", "classes"}
    keys = [f.name for f in fields(cls) if f.name not in shape and f.default is not dataclasses.MISSING]
    assert "depth" in keys
    for key in keys:
        new = other(getattr(base.net, key), typing.get_type_hints(cls)[key])
        new = {"d": 64, "heads": 2, "patch": 2}.get(key, new) if name == "vit_mini" else new
        assert digest(arch=f"{name}:{key}={new}") != base.config.digest(), key


def test_the_digest_changes_with_every_setting_of_the_data():
    base = tiny.resolved(data="prototypes")
    hints = typing.get_type_hints(type(base.source))
    for key, value in all_settings(base.source).items():
        # Fewer labels, not more: each needs a prototype.
        new = 5 if key == "labels" else other(value, hints[key])
        assert digest(data=f"prototypes:{key}={new}") != base.config.digest(), key


@pytest.mark.parametrize("name", RULES.names())
def test_a_spelled_out_default_changes_neither_digest_nor_name(name):
    plain = tiny.resolved(name)
    spelled = {**all_settings(plain.rule), **all_settings(plain.shared_options)}
    text = ",".join(f"{key}={str(value).lower()}" for key, value in spelled.items())
    again = tiny.resolved(f"{name}:{text}", arch="resmlp:terminal_norm=true,depth=3,w2_std=0.01,d=8", lr="1e-3")
    assert again.config == plain.config
    assert again.config.digest() == plain.config.digest()
    assert again.name == plain.name
    assert again.method == plain.method
    assert plain.method.partition(":")[0] == name


def test_the_order_of_settings_changes_nothing():
    assert digest("dfa:site=input,penalty=0.5") == digest("dfa:penalty=0.50,site=input")


def test_augmentation_is_filled_in_by_the_kind_of_data():
    assert tiny.resolved().config.augment == "none"
    assert digest(augment="none") == digest(augment="auto")
    with pytest.raises(InputError, match=r"augment=crop_flip needs images.*Use augment=none\."):
        tiny.resolved(augment="crop_flip")


def test_a_resolved_configuration_resolves_to_itself_also_from_json():
    filled = tiny.resolved("dfa:scale=unit_error,site=input,penalty=0.25,shell=method").config
    assert resolve(filled).config == filled
    assert resolve(RunConfig.from_json(json.loads(json.dumps(filled.to_json())))).config.digest() == filled.digest()


def test_bps_own_shell_is_the_backprop_shell():
    own, asked = tiny.resolved("bp:shell=method"), tiny.resolved("bp:shell=bp")
    assert own.shared_options.shell == "bp"
    assert own.method == "bp:shell=bp"
    assert own.name == asked.name


@pytest.mark.parametrize("name", [name for name in RULES.names() if name != "bp"])
def test_the_backprop_shell_of_another_method_is_refused_with_both_ways_out(name):
    with pytest.raises(InputError, match=rf"Write 'bp:shell=bp' for it, or '{name}:shell=method'"):
        tiny.resolved(f"{name}:shell=bp")


@pytest.mark.parametrize("name", ["bp", "sham"])
def test_a_site_that_a_method_is_not_defined_for_is_refused(name):
    with pytest.raises(InputError, match=r"defined for site=output only, not site=input\. Leave site out\."):
        tiny.resolved(f"{name}:site=input")


@pytest.mark.parametrize(
    ("method", "shown"),
    [
        ("dfa", "dfa"),
        ("dfa:scale=raw,shell=none", "dfa"),
        ("dfa:shell=method,scale=unit_error", "dfa:scale=unit_error,shell=method"),
        ("fa:penalty=0.0123456789", "fa:penalty=0.0123456789"),
    ],
)
def test_a_method_is_shown_by_what_differs_from_its_defaults(method, shown):
    resolved = tiny.resolved(method)
    assert resolved.method == shown
    assert tiny.resolved(resolved.method).name == resolved.name


def test_a_runs_name_is_a_plain_file_name():
    name = tiny.resolved("dfa:penalty=1e-05,scale=unit_error,site=input").name
    assert re.fullmatch(r"[A-Za-z0-9.=_+-]+", name)
    assert not name.startswith((".", "-"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"seeds": -1}, r"seed is -1; expected at least 0\."),
        ({"epochs": 0}, r"epochs is 0; expected at least 1\."),
        ({"epochs": "-3"}, r"epochs is -3; expected at least 1\."),
        ({"batch": 0}, r"batch is 0; expected at least 1\."),
        ({"lr": 0}, r"lr is 0\.0; expected more than 0\."),
        ({"lr": -0.1}, r"lr is -0\.1; expected more than 0\."),
        ({"weight_decay": "-1"}, r"weight_decay is -1\.0; expected at least 0\."),
        ({"dtype": "float16"}, r"Unknown dtype of the run 'float16'\. Did you mean 'float\d\d'\? Known: .*"),
        ({"dtype": "tf23"}, r"Unknown dtype of the run 'tf23'\. Did you mean 'tf32'\? Known: float32, float64, tf32\."),
        ({"btach": 3}, r"Unknown setting of the run 'btach'\. Did you mean 'batch'\? Known: .*"),
        ({"seeds": "one"}, r"seed is 'one'; expected a whole number\."),
        ({"seeds": [1, 2.5]}, r"seed is 2\.5; expected a whole number\."),
    ],
)
def test_what_a_run_cannot_be_is_refused(settings, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        grid("bp", **settings)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("dff", r"Unknown method 'dff'\. Did you mean 'dfa'\? Known: .*"),
        ("dfa:penalty=-1", r"penalty is -1\.0; expected at least 0\."),
        ("dfa:penalty=lots", r"penalty of the method 'dfa' is 'lots'; expected a finite number\."),
        ("dfa:shell=yes", r"Unknown shell of the method 'dfa' 'yes'\. Known: bp, method, none\."),
        ("dfa:scael=raw", r"Unknown setting of the method 'dfa' 'scael'\. Did you mean 'scale'\? Known: .*"),
        ("bp:scale=raw", r"Unknown setting of the method 'bp' 'scale'\. .*Known: .*"),
    ],
)
def test_what_a_method_cannot_be_is_refused(method, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        tiny.resolved(method)


@pytest.mark.parametrize("given", ["bp", {"shell": "bp"}, {"name": 3}, None])
def test_a_part_in_json_must_be_an_object_with_a_name(given):
    with pytest.raises(InputError, match=r"The config's 'method' is .*expected an object with a 'name'"):
        RunConfig.from_json({"method": given})


def test_one_configuration_for_each_method_and_seed_methods_outermost():
    configs = grid(["bp", "fa"], seeds=[1, 2], epochs=3)
    assert [(str(config.method), config.seed) for config in configs] == [("bp", 1), ("bp", 2), ("fa", 1), ("fa", 2)]
    assert {config.epochs for config in configs} == {3}


def test_a_setting_that_came_later_is_named_only_where_it_is_changed():
    """Runs that were published before it keep their names."""
    on = {"arch": tiny.arch("vit_mini")}
    assert "credit_tokens" not in tiny.resolved("fa", **on).config.method.settings
    assert digest("fa", **on) == digest("fa:credit_tokens=own", **on)
    changed = tiny.resolved("fa:credit_tokens=broadcast", **on)
    assert changed.config.method.settings["credit_tokens"] == "broadcast"
    assert RunConfig.from_json(changed.config.to_json()) == changed.config
