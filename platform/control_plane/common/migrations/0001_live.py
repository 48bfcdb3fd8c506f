from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LiveTopic",
            fields=[
                ("topic", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="StreamFrame",
            fields=[
                ("pk", models.CompositePrimaryKey("topic", "seq", blank=True, editable=False, primary_key=True, serialize=False)),
                ("topic", models.CharField(max_length=200)),
                ("seq", models.BigIntegerField()),
                ("type", models.CharField(max_length=20)),
                ("replaces", models.CharField(default="", max_length=200)),
                ("at", models.DateTimeField()),
                ("data", models.TextField()),
            ],
        ),
    ]
