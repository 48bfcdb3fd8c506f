from django.db import migrations, models
from django.db.models import CASCADE, Q


class Migration(migrations.Migration):
    """Monthly budgets of teams and projects."""

    dependencies = [
        ("fleet", "0008_slot_readings"),
        ("accounts", "0001_initial"),
        ("runs", "0006_attempt_ledger"),
    ]

    operations = [
        migrations.CreateModel(
            "Budget",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("gpu_hours", models.DecimalField(max_digits=12, decimal_places=2, null=True)),
                ("cost", models.DecimalField(max_digits=12, decimal_places=2, null=True)),
                ("state", models.CharField(max_length=12, default="within")),
                ("month", models.DateField()),
                ("pool", models.ForeignKey("fleet.Pool", on_delete=CASCADE, related_name="budgets")),
                ("team", models.ForeignKey("accounts.Team", on_delete=CASCADE, related_name="budgets")),
                (
                    "project",
                    models.ForeignKey(
                        "accounts.Project", on_delete=CASCADE, null=True, related_name="budgets"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["pool", "team"],
                        condition=Q(project=None),
                        name="one_budget_per_team_and_pool",
                    ),
                    models.UniqueConstraint(
                        fields=["pool", "project"], name="one_budget_per_project_and_pool"
                    ),
                ]
            },
        ),
    ]
