from django.db import migrations, models


class Migration(migrations.Migration):
    """Where jobs on other nodes reach those of a node. Agents that do not report it have no such address."""

    dependencies = [("fleet", "0005_reservations")]

    operations = [
        migrations.AddField(
            "node", "peer_address", models.CharField(blank=True, db_default="", default="", max_length=45)
        ),
        migrations.AddField(
            "node", "peer_network", models.CharField(blank=True, db_default="", default="", max_length=60)
        ),
    ]
