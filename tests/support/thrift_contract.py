"""The contract as thriftpy2 reads it, a Thrift library that is not this project's."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

from bookkeeper.rpc import contract

CONTRACT = Path(contract.__file__).with_name("bookkeeper.thrift")


@functools.cache
def thriftpy2_contract() -> Any:
    """The module that thriftpy2 makes of the contract."""
    thriftpy2: Any = importlib.import_module("thriftpy2")
    return thriftpy2.load(str(CONTRACT), module_name="contract_for_tests_thrift")
