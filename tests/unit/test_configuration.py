"""Run configurations: JSON form, digest, defaults of a method's settings, and invalid values."""

from __future__ import annotations

import itertools
import json
import re
import typing
from dataclasses import fields, replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
from committed import RESULTS, needs_results
from walkback.core.configuration import SPECS, RunConfig, SharedOptions, grid
from walkback.core.errors import InputError
from walkback.core.settings import Spec, all_settings
from walkback.credit import RULES
from walkback.data.catalog import DATA_SETS
from walkback.nets import ARCHS
from walkback.training.resolved_run import resolve

WORDS = st.text("abcdef_", min_size=1, max_size=3)
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
ANY_SPEC = st.builds(Spec, WORDS, st.dictionaries(WORDS, SCALARS, max_size=2))
CONFIGS = st.builds(
    RunConfig,
    method=ANY_SPEC,
    arch=ANY_SPEC,
    data=ANY_SPEC,
    seed=st.integers(0, 2**62),
    epochs=st.integers(1, 10**8),
    batch=st.integers(1, 10**8),
    lr=st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False),
    weight_decay=st.floats(0, allow_nan=False, allow_infinity=False),
    augment=st.sampled_from(typing.get_args(typing.get_type_hints(RunConfig)["augment"])),
    dtype=st.sampled_from(typing.get_args(typing.get_type_hints(RunConfig)["dtype"])),
    optimizer=ANY_SPEC,
    schedule=ANY_SPEC,
)

no_deadline = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def others(value, hint):
    """Values of the same type that are not `value`; a setting may accept only some of them."""
    if typing.get_origin(hint) is typing.Literal:
        return [choice for choice in typing.get_args(hint) if choice != value]
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return [1]
    return [value * 2 + 1, value * 2, value // 2 if isinstance(value, int) else value / 2]


def digest(method="bp", **settings):
    return tiny.resolved(method, **settings).config.digest()


@no_deadline
@given(CONFIGS)
def test_a_configuration_survives_json(config):
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@no_deadline
@given(CONFIGS, st.sampled_from([f.name for f in fields(RunConfig) if f.name not in SPECS]))
def test_the_digest_changes_with_every_field(config, name):
    hint = typing.get_type_hints(RunConfig)[name]
    value = getattr(config, name)
    assert replace(config, **{name: others(value, hint)[0]}).digest() != config.digest()


def test_digests_are_those_of_published_runs():
    """The third dtype, tf32, was added later: older runs must still be found and resumed."""
    before = {
        "float32": "2acc6e8e98609ad2e75d0433a9b546f348e9a6d4ac9b913fabff468bbf8ecc3b",
        "float64": "e04d4ab2418a1ebf0782b62f9b0021e391840fc8ad97b1222537001915562575",
    }
    assert RunConfig().digest() == before["float32"]
    assert {dtype: RunConfig(dtype=dtype).digest() for dtype in before} == before


@needs_results
def test_digests_and_names_of_the_committed_runs_do_not_change():
    """Settings that were added later are not recorded where they have their defaults."""
    records = [*(RESULTS / "runs").glob("*/run.json")]
    assert len(records) > 400
    for path in records:
        record = json.loads(path.read_text("utf-8"))
        resolved = resolve(RunConfig.from_json(record["config"]))
        assert (resolved.digest, resolved.name) == (record["digest"], path.parent.name)
        assert json.loads(json.dumps(resolved.config.to_json())) == record["config"]


def test_the_default_optimiser_and_schedule_are_not_recorded_however_they_are_written():
    plain = tiny.resolved()
    assert not plain.config.to_json().keys() & {"optimizer", "schedule"}
    written = tiny.resolved(optimizer="adamw:beta1=0.9,eps=1e-8", schedule="cosine")
    assert (written.digest, written.name) == (plain.digest, plain.name)
    assert tiny.resolved(optimizer="sgd").config.to_json()["optimizer"] == {
        "name": "sgd", "momentum": 0.0, "nesterov": False,
    }  # fmt: skip


@pytest.mark.parametrize("part", SPECS)
def test_the_digest_changes_with_every_part(part):
    base = RunConfig()
    spec = getattr(base, part)
    renamed = replace(base, **{part: Spec("other", spec.settings)})
    set_up = replace(base, **{part: Spec(spec.name, {"depth": 9})})
    assert len({base.digest(), renamed.digest(), set_up.digest()}) == 3


def check_every_setting(name, settings, hints, digests):
    """For each setting, compare the digests of `name` and of `name:key=other`.

    Each of `digests` is a function from text to digest; the first that accepts another value is used.
    """
    for key, value in settings.items():
        for new, digest_of in itertools.product(others(value, hints[key]), digests):
            try:
                changed = digest_of(f"{name}:{key}={new}")
            except InputError:
                continue
            assert changed != digest_of(name), key
            break
        else:
            pytest.fail(f"no other value of {key} of {name} was accepted")


@pytest.mark.parametrize("name", RULES.names())
def test_the_digest_changes_with_every_setting_of_a_method(name):
    """On the first network that accepts the setting: `credit_tokens` needs one with tokens."""
    rule = RULES.get(name)
    digests = [partial(digest, arch=arch) for arch in (tiny.network_for(name), *map(tiny.arch, ARCHS.names()))]
    for cls in (rule, SharedOptions):
        settings = all_settings(cls())
        if len(rule.sites) == 1:
            settings.pop("site", None)
        check_every_setting(name, settings, typing.get_type_hints(cls), digests)


@pytest.mark.parametrize("name", ARCHS.names())
def test_the_digest_changes_with_every_setting_of_a_network(name):
    net = tiny.resolved(arch=name).net
    settings = all_settings(net)
    assert "depth" in settings
    hints = typing.get_type_hints(type(net))
    check_every_setting(name, settings, hints, [lambda text: digest(arch=text)])


@pytest.mark.parametrize("name", DATA_SETS.names())
def test_the_digest_changes_with_every_setting_of_a_data_set(name):
    source = DATA_SETS.get(name)()
    hints = typing.get_type_hints(type(source))
    network = tiny.arch("gpt_mini" if source.per_token else "resmlp")
    check_every_setting(name, all_settings(source), hints, [lambda text: digest(data=text, arch=network)])


def spelled_out(name, settings):
    return f"{name}:" + ",".join(f"{key}={str(value).lower()}" for key, value in reversed(settings.items()))


@pytest.mark.parametrize("name", RULES.names())
def test_a_spelled_out_default_changes_neither_digest_nor_name(name):
    arch = tiny.network_for(name)
    plain = tiny.resolved(name, arch=arch)
    method = spelled_out(name, all_settings(plain.rule) | all_settings(plain.shared_options))
    again = tiny.resolved(method, arch=spelled_out(arch.partition(":")[0], all_settings(plain.net)), lr="1e-3")
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
    with pytest.raises(InputError, match=r"augment=crop_flip needs images.*augment=none"):
        tiny.resolved(augment="crop_flip")


def test_a_resolved_configuration_resolves_to_itself_also_from_json():
    filled = tiny.resolved("dfa:scale=unit_error,site=input,penalty=0.25,shell=method").config
    assert resolve(filled).config == filled
    assert resolve(RunConfig.from_json(json.loads(json.dumps(filled.to_json())))).config.digest() == filled.digest()


def test_bps_frozen_baseline_has_one_name_for_both_values_of_shell():
    method, bp = tiny.resolved("bp:shell=method"), tiny.resolved("bp:shell=bp")
    assert method.shared_options.shell == "bp"
    assert method.method == "bp:shell=bp"
    assert method.name == bp.name


@pytest.mark.parametrize("name", [name for name in RULES.names() if name != "bp"])
def test_shell_bp_of_another_method_is_refused_and_both_alternatives_are_named(name):
    with pytest.raises(InputError, match=rf"'bp:shell=bp'.*'{name}:shell=method'"):
        tiny.resolved(f"{name}:shell=bp", arch=tiny.network_for(name))


@pytest.mark.parametrize("name", ["kp", "sham"])
def test_a_site_that_a_method_is_not_defined_for_is_refused(name):
    with pytest.raises(InputError, match=r"site=output only, not site=input.*Leave site out"):
        tiny.resolved(f"{name}:site=input")


@pytest.mark.parametrize(
    ("method", "shown"),
    [
        ("dfa", "dfa"),
        ("dfa:scale=raw,shell=none", "dfa"),
        ("dfa:shell=method,scale=unit_error", "dfa:scale=unit_error,shell=method"),
        ("fa:penalty=0.0123456789", "fa:penalty=0.0123456789"),
        ("bp:site=output", "bp"),
        ("bp:site=input,penalty=0.01", "bp:site=input,penalty=0.01"),
        ("dfa:credit=exact,scale=unit_error,site=input", "dfa:scale=unit_error,site=input,credit=exact"),
        ("credit_bridge:credit=direction", "credit_bridge:credit=direction"),
    ],
)
def test_a_methods_text_has_the_settings_that_differ_from_their_defaults(method, shown):
    resolved = tiny.resolved(method)
    assert resolved.method == shown
    assert tiny.resolved(resolved.method).name == resolved.name


def test_a_runs_name_is_a_plain_file_name():
    name = tiny.resolved("dfa:penalty=1e-05,scale=unit_error,site=input").name
    assert re.fullmatch(r"[A-Za-z0-9.=_+-]+", name)
    assert not name.startswith((".", "-"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": -1}, r"seed is -1.*at least 0"),
        ({"epochs": 0}, r"epochs is 0.*at least 1"),
        ({"epochs": "-3"}, r"epochs is -3.*at least 1"),
        ({"batch": 0}, r"batch is 0.*at least 1"),
        ({"lr": 0}, r"lr is 0\.0.*more than 0"),
        ({"lr": -0.1}, r"lr is -0\.1.*more than 0"),
        ({"weight_decay": "-1"}, r"weight_decay is -1\.0.*at least 0"),
        ({"dtype": "float16"}, r"dtype.*'float16'.*'float\d\d'"),
        ({"dtype": "tf23"}, r"dtype.*'tf23'.*'tf32'.*float32, float64, tf32"),
        ({"btach": 3}, r"'btach'.*'batch'.*Known: .*epochs"),
        ({"seeds": "one"}, r"seed is 'one'.*whole number"),
        ({"seeds": [1, 2.5]}, r"seed is 2\.5.*whole number"),
    ],
)
def test_invalid_settings_of_a_run_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        grid("bp", **settings)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("dff", r"method 'dff'.*'dfa'\?"),
        ("dfa:penalty=-1", r"penalty is -1\.0.*at least 0"),
        ("dfa:penalty=lots", r"penalty of the method 'dfa' is 'lots'.*finite number"),
        ("dfa:shell=yes", r"shell of the method 'dfa' 'yes'.*bp, method, none"),
        ("dfa:scael=raw", r"method 'dfa' 'scael'.*'scale'\?"),
        ("dfa:credit=oracle", r"credit of the method 'dfa' 'oracle'.*direction, exact, own"),
        ("bp:scale=raw", r"method 'bp' 'scale'.*Known: .*penalty"),
    ],
)
def test_invalid_settings_of_a_method_are_refused(method, message):
    with pytest.raises(InputError, match=message):
        tiny.resolved(method)


@pytest.mark.parametrize("given", ["bp", {"shell": "bp"}, {"name": 3}, None])
def test_a_part_in_json_must_be_an_object_with_a_name(given):
    with pytest.raises(InputError, match=r"The config's 'method' is .*expected an object with a 'name'"):
        RunConfig.from_json({"method": given})


def test_grid_gives_one_configuration_for_each_method_and_seed_methods_outermost():
    configs = grid(["bp", "fa"], seeds=[1, 2], epochs=3)
    assert [(str(config.method), config.seed) for config in configs] == [("bp", 1), ("bp", 2), ("fa", 1), ("fa", 2)]
    assert {config.epochs for config in configs} == {3}


def test_a_setting_omitted_at_its_default_is_recorded_only_where_it_is_changed():
    """Runs that were published before it existed keep their names."""
    on = {"arch": tiny.arch("vit_mini")}
    assert "credit_tokens" not in tiny.resolved("fa", **on).config.method.settings
    assert digest("fa", **on) == digest("fa:credit_tokens=own", **on)
    changed = tiny.resolved("fa:credit_tokens=broadcast", **on)
    assert changed.config.method.settings["credit_tokens"] == "broadcast"
    assert RunConfig.from_json(changed.config.to_json()) == changed.config


@pytest.mark.parametrize(
    ("method", "exact", "direction"),
    [
        ("fa", "bp", "fa:credit=direction"),
        ("usf", "bp", "usf:credit=direction"),
        ("dfa:site=input", "bp", "dfa:site=input,credit=direction"),
        ("fa:penalty=0.01", "bp:penalty=0.01", "fa:penalty=0.01,credit=direction"),
        (
            "fa:penalty=0.1,penalty_reduction=mean",
            "bp:penalty=0.1,penalty_reduction=mean",
            "fa:penalty=0.1,penalty_reduction=mean,credit=direction",
        ),
        ("dfa:penalty_reduction=mean", "bp", "dfa:penalty_reduction=mean,credit=direction"),
        ("dfa:scale=unit_error", "dfa:scale=unit_error,credit=exact", "dfa:scale=unit_error,credit=direction"),
        (
            "sdfa:scale=unit_error,site=input",
            "sdfa:scale=unit_error,site=input,credit=exact",
            "sdfa:scale=unit_error,site=input,credit=direction",
        ),
    ],
)
def test_the_oracles_of_a_method_and_their_frozen_baselines(method, exact, direction):
    """Exact credit is backprop's own run where the method changes nothing but credit and penalty."""
    resolved = tiny.resolved(method)
    assert resolved.oracles.keys() == {"exact", "input", "direction"}
    assert resolved.oracles["exact"].method == exact
    assert resolved.oracles["direction"].method == direction
    penalty = exact.removeprefix("bp") if exact.startswith("bp") else ""
    assert resolved.oracles["input"].method == "bp:site=input" + penalty.replace(":", ",")
    for kind, oracle in resolved.oracles.items():
        assert oracle.credit_site == ("input" if kind == "input" else "output")
        assert oracle.oracles.keys() <= {"exact", "direction"} if kind == "input" else not oracle.oracles
        shell = oracle.baselines["method_shell"]
        assert (shell.method == "bp:shell=bp") == oracle.method.startswith("bp")
        assert shell.shared_options.credit == oracle.shared_options.credit
        assert not shell.oracles


def test_leaves_without_credit_stay_untrained_under_the_exact_oracle():
    resolved = tiny.resolved("fa", arch=tiny.arch("vit_mini"))
    oracle = resolved.oracles["exact"]
    assert oracle.method == "fa:credit=exact"
    assert {n for n in oracle.params() if oracle.is_frozen(n)} == {n for n in oracle.params() if resolved.is_frozen(n)}
    assert tiny.resolved("fa:credit_tokens=broadcast", arch=tiny.arch("vit_mini")).oracles["exact"].method == "bp"


@pytest.mark.parametrize(
    "method", ["bp", "bp:penalty=0.01", "sham", "bp:shell=bp", "dfa:shell=method", "fa:credit=exact"]
)
def test_exact_credit_frozen_baselines_and_oracles_have_no_oracles(method):
    assert tiny.resolved(method).oracles == {}


def test_backprop_at_the_input_is_compared_with_backprop_and_shares_its_frozen_baseline():
    resolved = tiny.resolved("bp:site=input,penalty=0.01")
    assert {kind: oracle.method for kind, oracle in resolved.oracles.items()} == {
        "exact": "bp:penalty=0.01",
        "direction": "bp:site=input,penalty=0.01,credit=direction",
    }
    assert {kind: run.method for kind, run in resolved.baselines.items()} == {
        "method_shell": "bp:shell=bp",
        "bp_shell": "bp:shell=bp",
        "bp": "bp",
    }
