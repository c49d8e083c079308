#!/bin/sh
# Where there is no C++ compiler, PyPI's ziglang is one. Writes into DIRECTORY the commands that a build looks for, so that
#   PATH="DIRECTORY:$PATH"
# is all it takes. Usage: zig-toolchain.sh PYTHON DIRECTORY, PYTHON being one that has ziglang installed.
set -eu
python=$1 directory=$2
zig=$("$python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / "zig")')
mkdir -p "$directory"
# baseline: without it, zig uses every instruction that this machine has, also where another one is to run the result.
write() {
    printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$2" > "$directory/$1"
    chmod +x "$directory/$1"
}
write c++ "c++ -mcpu=baseline"
write cc "cc -mcpu=baseline"
write ar ar
write ranlib ranlib
