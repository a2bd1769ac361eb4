"""doctor.py: it names what is missing with its remedy, and never fails for want of it."""

import json

import pytest

from qtoolkit import doctor


def test_a_diagnosis_is_strict_json_and_text() -> None:
    found = doctor.examine()
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["format"] == 1 and told["versions"]["qtoolkit"]
    assert {"cpu", "features", "kernel_tier", "vulkan", "missing", "threads"} <= set(told)
    assert "kernel tier" in str(found) and found.kernel_tier


def test_what_is_missing_comes_with_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    found = doctor.examine()
    assert {m.what for m in found.missing} >= {"torch", "papermill"}
    assert all(
        m.remedy.startswith(("python -m pip install", "sudo apt-get")) for m in found.missing
    )
    assert found.kernel_tier == "none: numba is not installed"


def test_a_software_device_is_called_a_cpu() -> None:
    lavapipe = doctor.DeviceInfo(0, "llvmpipe", "CPU", True, "Mesa", (1, 3))
    found = doctor.Diagnosis({}, "", "", 1, (), "", (lavapipe,), ())
    assert "llvmpipe (software on the CPU)" in str(found)
