import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0006_run_live"), ("telemetry", "0002_reward_parts")]

    operations = [
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rule", models.CharField(max_length=40)),
                ("message", models.CharField(max_length=400)),
                ("train_step", models.PositiveIntegerField()),
                ("opened_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alerts", to="runs.run"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["run", "-opened_at"], name="alerts_of_a_run")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("closed_at", None)),
                        fields=("run", "rule"),
                        name="one_open_alert_per_rule",
                    )
                ],
            },
        )
    ]
