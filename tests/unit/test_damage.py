"""Every stored file that is not as it was written is refused before it is used, and nothing is changed by that.

Each kind of file is damaged in each way: a flipped bit, a NaN, another type, a missing and a misshapen array.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import walkback
from dying import contents
from walkback.auditing.measure_run import RunMeasurer
from walkback.cli.main import main
from walkback.core.content_hash import SHA256, arrays_hash, with_hash
from walkback.core.errors import EXIT_INPUT, InputError
from walkback.core.measurements import Measurements
from walkback.runs import stored_plan, train_runs
from walkback.runs.measurement_files import ANSWERS, FUNCTIONAL, epoch_file
from walkback.runs.store import LOG, LOG_HASH, MODEL, PREVIOUS, RECORD, RESUME, RULE
from walkback.training.planning import plan_fleets as planning
from walkback.training.planning.cost_model import CostModel

TRAINING = {
    "methods": "local",  # Its state is learned, so that a checkpoint has every part.
    "seeds": [1],
    "epochs": 3,
    "arch": "resmlp:d=4,depth=2",
    "data": "prototypes:train=64,test=1024,dim=4",
    "batch": 32,
    "device": "cpu",
    "driver": "single",  # Nothing is traced; which driver is no matter here.
    "checkpoint_seconds": 0,
}
WORDS = ["--arch", TRAINING["arch"], "--data", TRAINING["data"], "--set", "batch=32", "--device", "cpu", "--quiet"]
RESUMING = ["train", "--resume", "--method", TRAINING["methods"], "--seeds", "1", "--epochs", "3", *WORDS]


class StopAfter(train_runs.ProgressListener):
    """Interrupts training in its n-th step."""

    def __init__(self, steps):
        self.left = steps

    def stepped(self, steps):
        self.left -= steps
        if self.left == 0:
            raise KeyboardInterrupt


def interrupted(out, steps=5, **changes):
    """The folder of a run that was interrupted, by default in its third and last epoch."""
    with pytest.raises(KeyboardInterrupt):
        walkback.train(**(TRAINING | changes), out=out, listener=StopAfter(steps))
    (path,) = (each.parent for each in out.glob(f"*/{RECORD}"))
    return path


@pytest.fixture(scope="module", autouse=True)
def nothing_is_timed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning.CostModel, "of", lambda device: CostModel(device, 1e9, lambda *_: 1e-6))
        yield


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    return interrupted(tmp_path_factory.mktemp("begun"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    (result,) = walkback.train(**TRAINING, out=tmp_path_factory.mktemp("finished"))
    path = Path(result.path)
    run = walkback.load(path)
    measurer = RunMeasurer(None, train_runs.choose_device("cpu"))
    resolved = measurer.resolved(run)
    taken = measurer.measure(run, resolved)
    taken.save(path / "measurements.npz")
    (path / epoch_file(1)).parent.mkdir()
    taken.rounded(8).save(path / epoch_file(1), narrow=True)
    measurer.measure_answers(run, resolved).save(path / ANSWERS)
    measurer.measure_functional(run, resolved, samples=256).save(path / FUNCTIONAL)
    return path


@pytest.fixture
def path(begun, tmp_path):
    return Path(shutil.copytree(begun.parent, tmp_path / "out")) / begun.name


@pytest.fixture
def done(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "done" / finished.name))


def flip(file, position=-1):
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def changed(arrays, damage):
    """The arrays with the first one damaged, or without it."""
    name = min(arrays)
    array = np.array(arrays[name])
    if damage == "missing":
        return {key: each for key, each in arrays.items() if key != name}
    if damage == "type":
        return {**arrays, name: array.astype(np.int64)}
    if damage == "shape":
        return {**arrays, name: array[..., :-1].copy()}
    assert damage == "nan"
    array = array.astype(np.float64) if array.dtype == np.uint8 else array
    array.flat[0] = np.nan if np.isfinite(array.flat[0]) else 0.0
    return {**arrays, name: array}


DAMAGES = ["flip", "nan", "type", "missing", "shape"]


def damage_safetensors(file, damage, **facts):
    """Damage a file of arrays; `facts` replace its metadata, and None removes an entry."""
    if damage == "flip":
        flip(file)
        return
    with safetensors.safe_open(file, "np") as opened:
        metadata = (opened.metadata() or {}) | facts
    arrays = changed(safetensors.numpy.load_file(file), damage)
    known = {key: value for key, value in metadata.items() if value is not None}
    file.write_bytes(safetensors.numpy.save(arrays, metadata=known or None))


def rehash(file):
    """Give a damaged checkpoint the hash of its new content, as a faulty writer would."""
    with safetensors.safe_open(file, "np") as opened:
        facts = opened.metadata()
    arrays = safetensors.numpy.load_file(file)
    file.write_bytes(safetensors.numpy.save(arrays, metadata={**facts, SHA256: arrays_hash(arrays, facts)}))


def edit(path, **changes):
    """Change the record without its hash; None removes a key."""
    record = json.loads((path / RECORD).read_text()) | changes
    (path / RECORD).write_text(json.dumps({key: value for key, value in record.items() if value is not None}))


def as_0_8_1(path):
    """Remove the hashes that 0.8.1 did not write, from the record and the checkpoint."""
    edit(path, **{SHA256: None})
    with safetensors.safe_open(path / RESUME, "np") as opened:
        facts = {key: value for key, value in opened.metadata().items() if key not in (SHA256, LOG_HASH)}
    arrays = safetensors.numpy.load_file(path / RESUME)
    (path / RESUME).write_bytes(safetensors.numpy.save(arrays, metadata=facts))


def refused(path, words, capsys, sentence):
    """The command ends with exit code 3 and one sentence, and changes nothing."""
    before = contents(path.parent)
    assert main([*words, "--out", str(path.parent)]) == EXIT_INPUT
    printed = capsys.readouterr().err
    assert sentence in printed
    assert printed.count("\n") == 1
    assert contents(path.parent) == before


class TestCheckpoint:
    def test_it_is_resumed_as_it_is(self, path, finished):
        walkback.train(**TRAINING, out=path.parent, resume=True)
        for name in (MODEL, RULE, LOG):
            assert (path / name).read_bytes() == (finished / name).read_bytes()
        assert [each.name for each in path.parent.iterdir()] == [path.name], "the plan is removed with the last run"

    @pytest.mark.parametrize("name", [RESUME, PREVIOUS])
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_changed_one_is_refused(self, path, damage, name, capsys):
        if name == PREVIOUS:
            shutil.copy(path / RESUME, path / PREVIOUS)
        damage_safetensors(path / name, damage)
        refused(path, RESUMING, capsys, f"{name} is not the file that was written (its sha256 differs)")

    @pytest.mark.parametrize("key", ["epoch", "log_bytes", "fleet", "seconds"])
    def test_a_changed_fact_is_refused(self, path, key, capsys):
        with safetensors.safe_open(path / RESUME, "np") as opened:
            facts = opened.metadata()
        other = {"epoch": "1", "log_bytes": "3", "fleet": '["another"]', "seconds": "1e9"}[key]
        arrays = safetensors.numpy.load_file(path / RESUME)
        (path / RESUME).write_bytes(safetensors.numpy.save(arrays, metadata={**facts, key: other}))
        refused(path, RESUMING, capsys, f"{RESUME} is not the file that was written")

    @pytest.mark.parametrize("damage", ["type", "missing", "shape"])
    def test_arrays_that_do_not_fit_the_configuration_are_refused_even_with_a_right_hash(self, path, damage, capsys):
        damage_safetensors(path / RESUME, damage)
        rehash(path / RESUME)
        refused(path, RESUMING, capsys, "'moments/first.blocks.0.norm.bias' is ")

    @pytest.mark.parametrize("part", ["params", "state", "moments", "own_moments"])
    def test_every_part_is_needed(self, path, part, capsys):
        with safetensors.safe_open(path / RESUME, "np") as opened:
            facts = opened.metadata()
        arrays = safetensors.numpy.load_file(path / RESUME)
        last = max(name for name in arrays if name.startswith(f"{part}/"))
        del arrays[last]
        (path / RESUME).write_bytes(safetensors.numpy.save(arrays, metadata=facts))
        rehash(path / RESUME)
        refused(path, RESUMING, capsys, f"'{last}' is missing where its configuration needs float32")

    def test_a_removed_hash_is_refused_where_the_version_writes_one(self, path, capsys):
        record = (path / RECORD).read_bytes()
        as_0_8_1(path)
        (path / RECORD).write_bytes(record)
        refused(path, RESUMING, capsys, f"{RESUME} lacks its content hash")

    def test_without_a_hash_it_is_resumed_with_a_warning(self, path, finished, capsys):
        as_0_8_1(path)
        assert main([*RESUMING, "--out", str(path.parent)]) == 0
        assert "has no content hash: its shapes were checked, its numbers were not" in capsys.readouterr().err
        assert (path / MODEL).read_bytes() == (finished / MODEL).read_bytes()

    @pytest.mark.parametrize("damage", ["nan", "type", "missing", "shape"])
    def test_without_a_hash_arrays_are_checked_as_far_as_can_be(self, path, damage, capsys):
        as_0_8_1(path)
        damage_safetensors(path / RESUME, damage)
        refused(path, RESUMING, capsys, "'moments/first.blocks.0.norm.bias' ")

    def test_a_training_that_diverged_is_resumed_as_it_was(self, tmp_path):
        diverging = {**TRAINING, "methods": "bp", "lr": 1e30}
        path = interrupted(tmp_path / "stopped", **diverging)
        with np.errstate(invalid="ignore"):
            arrays = safetensors.numpy.load_file(path / RESUME)
        assert not all(np.isfinite(array).all() for array in arrays.values())
        walkback.train(**diverging, out=tmp_path / "stopped", resume=True)
        walkback.train(**diverging, out=tmp_path / "through")
        for name in (MODEL, LOG):
            assert (path / name).read_bytes() == (tmp_path / "through" / path.name / name).read_bytes()

    def test_no_member_of_a_fleet_is_touched_if_one_is_damaged(self, tmp_path, capsys):
        with pytest.raises(KeyboardInterrupt):
            walkback.train(**{**TRAINING, "seeds": [1, 2], "driver": "fleet"}, out=tmp_path, listener=StopAfter(5))
        last = max(each.parent for each in tmp_path.glob(f"*/{RESUME}"))
        for each in tmp_path.glob(f"*/{LOG}"):
            with each.open("a") as file:
                file.write('{"epoch": 3}\n')  # Resuming would cut this off.
        flip(last / RESUME)
        words = [*RESUMING[:5], "1", "2", *RESUMING[6:]]
        assert words[4:7] == ["--seeds", "1", "2"]
        refused(last, words, capsys, f"{last.name} is damaged: {RESUME}")


class TestLog:
    def test_a_changed_byte_before_the_checkpoint_is_refused(self, path, capsys):
        (path / LOG).write_bytes((path / LOG).read_bytes().replace(b'"epoch": 1', b'"epoch": 7'))
        refused(path, RESUMING, capsys, f"{LOG} is not the file that was written")

    def test_of_a_finished_run_is_refused(self, done):
        assert [row["epoch"] for row in walkback.load(done).log()] == [1, 2, 3]
        (done / LOG).write_bytes((done / LOG).read_bytes().replace(b'"epoch": 1', b'"epoch": 7'))
        with pytest.raises(InputError, match=f"{LOG} is not the file that was written"):
            walkback.load(done).log()


class TestRecord:
    @pytest.mark.parametrize("kind", ["begun", "finished"])
    def test_any_change_is_noticed(self, kind, path, done, capsys):
        folder = {"begun": path, "finished": done}[kind]
        edit(folder, started="yesterday")
        refused(folder, RESUMING, capsys, f"{RECORD} is not the file that was written")

    @pytest.mark.parametrize("kind", ["begun", "finished"])
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("run", "another"),
            ("method", "bp"),
            ("seed", 2),
            ("dtype", "float64"),
            ("rule_has_state", False),
            ("digest", "0" * 64),
        ],
    )
    def test_one_that_contradicts_the_configuration_is_refused(self, kind, key, value, path, done, capsys):
        folder = {"begun": path, "finished": done}[kind]
        edit(folder, **{SHA256: None, key: value})
        refused(folder, RESUMING, capsys, f"has the {key} {value!r}; the run of that name has ")

    @pytest.mark.parametrize("kind", ["begun", "finished"])
    def test_a_changed_configuration_is_refused(self, kind, path, done, capsys):
        folder = {"begun": path, "finished": done}[kind]
        config = json.loads((folder / RECORD).read_text())["config"]
        edit(folder, **{SHA256: None, "config": {**config, "lr": 0.5}})
        refused(folder, RESUMING, capsys, f"the configuration in {RECORD} has the digest ")

    def test_other_data_are_refused_before_training_goes_on(self, path, capsys):
        edit(path, **{SHA256: None, "data": {"name": "prototypes", "digest": "0" * 64}})
        refused(path, RESUMING, capsys, "was begun on data with sha256 000000000000…, but 'prototypes' here has ")

    def test_one_without_a_hash_is_accepted(self, done):
        edit(done, **{SHA256: None, LOG_HASH: None})
        assert walkback.load(done).log()


@pytest.mark.parametrize("name", [MODEL, RULE])
@pytest.mark.parametrize("damage", DAMAGES)
def test_changed_weights_are_refused(done, name, damage, capsys):
    damage_safetensors(done / name, damage)
    before = contents(done)
    assert main(["diagnose", str(done), "--device", "cpu"]) == EXIT_INPUT
    assert f"{name} is not the file that was written" in capsys.readouterr().err
    assert contents(done) == before


class TestMeasurements:
    FILES = ("measurements.npz", ANSWERS, FUNCTIONAL, epoch_file(1))

    @pytest.mark.parametrize("name", FILES)
    def test_they_are_read_as_they_were_written(self, done, name, tmp_path):
        taken = Measurements.load(done / name)
        assert SHA256 not in taken.facts
        taken.save(tmp_path / "again.npz", narrow=name == epoch_file(1))
        assert (tmp_path / "again.npz").read_bytes() == (done / name).read_bytes()

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("damage", [*DAMAGES[1:], "facts"])
    def test_changed_ones_are_refused(self, done, name, damage):
        self.damage(done / name, damage)
        with pytest.raises(InputError, match=r"Measure the run again\.$") as caught:
            Measurements.load(done / name)
        assert name in str(caught.value)

    def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(self, done):
        """Some bytes of a zip archive, such as its dates, are no part of the content."""
        file = done / ANSWERS
        whole, taken = file.read_bytes(), Measurements.load(file)
        refusals = 0
        for position in range(0, len(whole), 3):
            flip(file, position)
            try:
                assert Measurements.load(file).equals(taken), position
            except InputError:
                refusals += 1
            file.write_bytes(whole)
        assert refusals > 0.25 * len(whole)

    @pytest.mark.parametrize("damage", ["type", "shape"])
    def test_those_without_a_hash_are_checked_as_far_as_can_be(self, done, damage):
        file = done / "measurements.npz"
        self.damage(file, damage, is_hashed=False)
        said = {"type": "'branch_norm' has the type int64", "shape": "1023 entries along 'sample'"}[damage]
        with pytest.raises(InputError, match=said):
            Measurements.load(file)

    def test_those_without_a_hash_are_accepted(self, done):
        taken = Measurements.load(done / "measurements.npz")
        self.damage(done / "measurements.npz", None, is_hashed=False)
        assert Measurements.load(done / "measurements.npz").equals(taken)

    def damage(self, file, damage, is_hashed=True):
        with np.load(file) as stored:
            arrays = dict(stored)
        facts = json.loads(arrays.pop("facts").tobytes())
        assert SHA256 in facts
        if damage == "facts":
            facts["files"] = {}
        elif damage is not None:
            arrays = changed(arrays, damage)
        if not is_hashed:
            del facts[SHA256]
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8))
        file.write_bytes(buffer.getvalue())


class TestPlan:
    @pytest.mark.parametrize(
        "content",
        [b"", b"[]", b"\xff", b"[" * 100_000, b"{}", b'{"format": 2}', b'{"format": 1, "groups": []}'],
        ids=["empty", "list", "binary", "deep", "nothing", "format", "no hash"],
    )
    def test_what_is_no_plan_is_refused(self, path, content, capsys):
        (path.parent / stored_plan.PLAN).write_bytes(content)
        refused(path, RESUMING, capsys, f"{stored_plan.PLAN} is damaged: it ")

    def test_a_changed_one_is_refused(self, path, capsys):
        file = path.parent / stored_plan.PLAN
        file.write_text(file.read_text().replace('"single"', '"fleet"'))
        refused(path, RESUMING, capsys, f"{stored_plan.PLAN} is damaged: it is not the file that was written")

    @pytest.mark.parametrize("groups", [3, [3], [{"driver": "fleet"}], [{"driver": "x", "fleets": [["a"]]}]])
    def test_one_with_a_right_hash_and_other_content_is_refused(self, path, groups, capsys):
        file = path.parent / stored_plan.PLAN
        file.write_text(json.dumps(with_hash({"format": 1, "groups": groups})))
        refused(path, RESUMING, capsys, f"{stored_plan.PLAN} is damaged: it ")
