from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0003_project_quota'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='drain_deadline',
            field=models.DateTimeField(null=True),
        ),
    ]
