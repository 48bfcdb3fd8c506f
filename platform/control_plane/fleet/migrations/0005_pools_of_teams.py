from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def open_existing_pools(apps: Any, schema_editor: Any) -> None:
    """Until now every team could use every pool."""
    apps.get_model("fleet", "Pool").objects.update(all_teams=True)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0011_remove_trainer_code"),
        ("fleet", "0004_job_isolation"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField("pool", "all_teams", models.BooleanField(db_default=False, default=False)),
        migrations.AddField("pool", "trainer_code", models.BooleanField(db_default=False, default=False)),
        migrations.CreateModel(
            "PoolTeam",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pool", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="fleet.pool")),
                ("team", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="accounts.team")),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("pool", "team"), name="team_bound_once")],
            },
        ),
        migrations.AddField(
            "pool",
            "teams",
            models.ManyToManyField(related_name="pools", through="fleet.PoolTeam", to="accounts.team"),
        ),
        migrations.CreateModel(
            "PoolAdmin",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("appointed_at", models.DateTimeField(auto_now_add=True)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="admins", to="fleet.pool"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="pools_administered",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("pool", "user"), name="pool_admin_once")],
            },
        ),
        migrations.RunPython(open_existing_pools, migrations.RunPython.noop),
    ]
