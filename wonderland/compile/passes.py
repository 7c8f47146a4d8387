"""Program to Program."""
from wonderland.core.program import Program
def optimize(program: Program) -> list[tuple[str, Program]]:
    return [("recorded", program)]
