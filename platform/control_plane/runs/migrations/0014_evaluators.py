from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0013_kinds_of_checkpoints"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="evaluator_wanted",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        migrations.AddField(
            model_name="job",
            name="evaluates",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
    ]
