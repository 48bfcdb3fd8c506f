from django.db import migrations, models


class Migration(migrations.Migration):
    """Tokens by their final state. Unknown for attempts that reported before."""

    dependencies = [("runs", "0005_remote_engines")]

    operations = [
        migrations.AddField("attempt", "tokens_dropped", models.JSONField(null=True)),
        migrations.AddField("attempt", "tokens_lost", models.BigIntegerField(null=True)),
        migrations.AddField("attempt", "tokens_in_flight", models.BigIntegerField(null=True)),
    ]
