from django.db import migrations, models


class Migration(migrations.Migration):
    """Readings of slots, and processes of others on them. Unknown until the next heartbeat of a node."""

    dependencies = [("fleet", "0007_slot_prices")]

    operations = [
        migrations.AddField("slot", "utilization", models.FloatField(null=True)),
        migrations.AddField("slot", "memory_used_bytes", models.BigIntegerField(null=True)),
        migrations.AddField("slot", "celsius", models.FloatField(null=True)),
        migrations.AddField("slot", "occupied_by", models.JSONField(default=list, db_default=[])),
    ]
