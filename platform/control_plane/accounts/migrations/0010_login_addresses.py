from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def forget_unkeyed_fingerprints(apps: Any, schema_editor: Any) -> None:
    """They were the beginning of a plain SHA-256; `manage.py rotate_secrets` makes keyed ones."""
    apps.get_model("accounts", "ProjectSecret").objects.update(fingerprint="")


class Migration(migrations.Migration):
    dependencies = [("accounts", "0009_secrets_for_jobs")]

    operations = [
        migrations.CreateModel(
            name="LoginAddress",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("address", models.CharField(max_length=64)),
                ("at", models.DateTimeField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            "loginaddress",
            models.UniqueConstraint(fields=("user", "address"), name="one_row_per_login_address"),
        ),
        migrations.AlterField("loginfailure", "at", models.DateTimeField()),
        migrations.RunPython(forget_unkeyed_fingerprints, migrations.RunPython.noop),
    ]
