import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_initial'),
        ('fleet', '0002_nominal_quota'),
    ]

    operations = [
        migrations.AddField(
            model_name='lease',
            name='project',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, to='accounts.project'),
        ),
        migrations.CreateModel(
            name='ProjectQuota',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('nominal_slots', models.PositiveIntegerField(default=0)),
                ('limit_slots', models.PositiveIntegerField(null=True)),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='fleet.pool')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='accounts.project')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'pool'), name='one_quota_per_project_and_pool')],
            },
        ),
    ]
