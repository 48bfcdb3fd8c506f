from typing import Any

from django.db import migrations


def rename(apps: Any, schema_editor: Any) -> None:
    apps.get_model("accounts", "Membership").objects.filter(role="member").update(role="editor")


class Migration(migrations.Migration):
    """The role `member` is now called `editor`; what it may do stays the same."""

    dependencies = [("accounts", "0005_teams_and_service_accounts")]
    operations = [migrations.RunPython(rename, migrations.RunPython.noop)]
