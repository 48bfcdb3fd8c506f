from django.db import migrations, models
from django.db.models import CASCADE


class Migration(migrations.Migration):
    """Prices of slots. Leases of before have none."""

    dependencies = [("fleet", "0006_node_peers")]

    operations = [
        migrations.CreateModel(
            "SlotPrice",
            [
                ("id", models.BigAutoField(primary_key=True, auto_created=True, serialize=False, verbose_name="ID")),
                ("device", models.CharField(max_length=16)),
                ("gpu_model", models.CharField(max_length=200, default="", blank=True)),
                ("per_hour", models.DecimalField(max_digits=12, decimal_places=4)),
                ("pool", models.ForeignKey("fleet.Pool", on_delete=CASCADE, related_name="prices")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["pool", "device", "gpu_model"], name="price_of_slots")
                ]
            },
        ),
        migrations.AddField(
            "lease", "price_per_hour", models.DecimalField(max_digits=12, decimal_places=4, null=True)
        ),
    ]
