from typing import Any

from django.db import migrations


def name_warm_starts(apps: Any, _: Any) -> None:
    """What supervised runs left before checkpoints had kinds."""
    runs = apps.get_model("runs", "Run").objects.filter(kind="sft").values_list("pk", flat=True)
    apps.get_model("catalog", "Checkpoint").objects.filter(run_id__in=list(runs)).update(kind="weights")


class Migration(migrations.Migration):

    dependencies = [
        ("catalog", "0010_checkpoint_kind"),
        ("runs", "0012_spent"),
    ]

    operations = [migrations.RunPython(name_warm_starts, migrations.RunPython.noop)]
