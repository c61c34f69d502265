"""``python -m tools.contract``: write the modules beside ``bookkeeper.thrift`` again."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.contract.idl import ContractError, read_contract
from tools.contract.python_code import modules_of

CONTRACT = Path(__file__).parents[2] / "bookkeeper" / "rpc" / "contract" / "bookkeeper.thrift"


def main() -> int:
    """Write the modules; an error names the line of the contract."""
    try:
        modules = modules_of(read_contract(CONTRACT.read_text()))
    except ContractError as error:
        print(f"{CONTRACT}: {error}", file=sys.stderr)
        return 1
    for name, text in modules.items():
        CONTRACT.with_name(f"{name}.py").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
