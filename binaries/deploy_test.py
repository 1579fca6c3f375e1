"""The files of deploy/ fit the binaries, each other, and the schemas of their formats.

Nothing here builds an image or talks to a cluster or a cloud.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import textwrap

from absl.testing import absltest
from absl.testing import parameterized
import kubernetes_validate
from packaging import requirements
from packaging import utils
import pytest
import yaml

from binaries import commands_testing

_ROOT = pathlib.Path(__file__).parents[1]
_DEPLOY = _ROOT / 'deploy'
_KUBERNETES = sorted(_DEPLOY.glob('kubernetes/**/*.yaml'))
_LEARNER = _DEPLOY / 'kubernetes/learner.yaml'
_INFERENCE = _DEPLOY / 'kubernetes/inference'
_SERVING = _DEPLOY / 'kubernetes/serving/policy.yaml'
_PARTS = {'reverb_server', 'learner', 'actor', 'evaluator'}


def _documents(path):
  return [x for x in yaml.safe_load_all(path.read_text()) if x]


def _of_kind(*kinds):
  return [x for path in _KUBERNETES if path.parent.name == 'kubernetes'
          for x in _documents(path) if x['kind'] in kinds]


def _container(workload):
  container, = workload['spec']['template']['spec']['containers']
  return container


def _selected(selector, labels):
  """Whether a label selector matches."""
  matches = all(labels.get(k) == v for k, v in selector.get('matchLabels', {}).items())
  for expression in selector.get('matchExpressions', []):
    assert expression['operator'] == 'In'
    matches &= labels.get(expression['key']) in expression['values']
  return matches


class _Test(parameterized.TestCase):

  def assert_starts_a_part(self, arguments):
    """Arguments of `python -m`: a binary, and flags that it has."""
    package, name = arguments[0].split('.')
    path = _ROOT / package / f'{name}.py'
    self.assertTrue(path.exists(), path)
    for argument in arguments[1:]:
      flag, _, value = argument.partition('=')
      self.assertStartsWith(flag, '--')
      self.assertIn(flag[2:], commands_testing.flags(path), f'{name} has no such flag')
      self.assertNotEmpty(value, argument)
      if value.startswith('gin/'):
        self.assertTrue((_ROOT / value).exists(), value)
    return name


class DeployTest(_Test):

  @parameterized.parameters(*map(str, _KUBERNETES))
  @pytest.mark.medium
  def test_manifests_fit_the_schema(self, path):
    for document in _documents(pathlib.Path(path)):
      for version in '1.30', '1.37':
        kubernetes_validate.validate(document, version, strict=True)

  def test_workloads_start_the_parts_without_privileges(self):
    started = []
    workloads = _of_kind('StatefulSet', 'Deployment')
    for workload in workloads:
      spec = workload['spec']['template']['spec']
      container = _container(workload)
      started.append(self.assert_starts_a_part(container['args']))
      self.assertTrue(_selected(workload['spec']['selector'],
                                workload['spec']['template']['metadata']['labels']))
      self.assertTrue(spec['securityContext']['runAsNonRoot'])
      self.assertFalse(spec['automountServiceAccountToken'])
      self.assertEqual(container['securityContext'], {
          'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
          'capabilities': {'drop': ['ALL']}})
      given = {x['name'] for x in container['env']}
      self.assertEqual(given, set(re.findall(r'\$\((\w+)\)', str(container['args']))))
      for needs in container['resources'].values():
        self.assertContainsSubset({'memory', 'ephemeral-storage'}, needs)
      self.assertContainsSubset({'startupProbe', 'livenessProbe'}, container)
      # The documented command writes the checksum of the settings here.
      self.assertEqual(
          workload['spec']['template']['metadata']['annotations']['gtrxl/settings'],
          'SETTINGS')
      volumes = {x['name'] for x in spec['volumes']} | {
          x['metadata']['name']
          for x in workload['spec'].get('volumeClaimTemplates', [])}
      self.assertEqual(volumes, {x['name'] for x in container['volumeMounts']})
    self.assertCountEqual(started, _PARTS)
    settings, = _of_kind('ConfigMap')
    self.assertTrue((_ROOT / settings['data']['GIN_FILE']).exists())

  def test_only_this_run_s_pods_reach_reverb(self):
    service, = (x for x in _of_kind('Service') if x['metadata']['name'] == 'gtrxl-server')
    labels = {self.assert_starts_a_part(_container(x)['args']):
              x['spec']['template']['metadata']['labels']
              for x in _of_kind('StatefulSet', 'Deployment')}
    server = next(_container(x) for x in _of_kind('StatefulSet')
                  if x['metadata']['name'] == 'gtrxl-server')
    ports = {x['name']: x['containerPort'] for x in server['ports']}
    port, = service['spec']['ports']
    self.assertEqual(port['targetPort'], 'reverb')
    self.assertEqual(service['spec']['selector'], labels['reverb_server'])
    self.assertIn(f'--port={ports["reverb"]}', server['args'])

    policies = [x['spec'] for x in _of_kind('NetworkPolicy')
                if 'Ingress' in x['spec']['policyTypes']]
    def admitted(pod_labels, number, **where):
      """Whether a pod with these labels reaches a port of the server."""
      return any(
          _selected(policy['podSelector'], labels['reverb_server'])
          and any(x['port'] == number for x in rule['ports'])
          and any(_selected(x['podSelector'], pod_labels) and (
              'namespaceSelector' in x or not where.get('elsewhere'))
                  for x in rule['from'])
          for policy in policies for rule in policy['ingress'])
    prometheus = {'app.kubernetes.io/name': 'prometheus'}
    for part in 'learner', 'actor', 'evaluator':
      self.assertTrue(admitted(labels[part], ports['reverb']))
      self.assertFalse(admitted(labels[part], ports['reverb'], elsewhere=True))
      self.assertFalse(admitted(labels[part], ports['metrics']))
    self.assertFalse(admitted(prometheus, ports['reverb']))
    self.assertFalse(admitted({}, ports['reverb']))
    self.assertFalse(admitted({}, ports['metrics']))
    self.assertTrue(admitted(prometheus, ports['metrics'], elsewhere=True))
    for part, its in labels.items():
      self.assertTrue(any(_selected(x['podSelector'], its) for x in policies), part)

    for workload in _of_kind('StatefulSet', 'Deployment'):
      arguments = _container(workload)['args']
      if arguments[0] != 'binaries.reverb_server':
        address = re.search(r'--server=(\S+?):(\d+)', ' '.join(arguments)).groups()
        self.assertEqual(
            address, (service['metadata']['name'], str(port['port'])))
      self.assertIn(f'--metrics_port={ports["metrics"]}', arguments)
      metadata = workload['spec']['template']['metadata']
      self.assertEqual(metadata['annotations']['prometheus.io/port'],
                       str(ports['metrics']))

  def test_pods_of_stateful_sets_have_names(self):
    services = {x['metadata']['name']: x['spec'] for x in _of_kind('Service')}
    for workload in _of_kind('StatefulSet'):
      service = services[workload['spec']['serviceName']]
      self.assertEqual(service['clusterIP'], 'None')
      self.assertEqual(service['selector'],
                       workload['spec']['template']['metadata']['labels'])

  def test_pods_reach_only_the_server_and_names(self):
    policy, = (x['spec'] for x in _of_kind('NetworkPolicy')
               if x['spec']['policyTypes'] == ['Egress'])
    labels = {x['metadata']['name']: x['spec']['template']['metadata']['labels']
              for x in _of_kind('StatefulSet', 'Deployment')}
    for its in labels.values():
      self.assertTrue(_selected(policy['podSelector'], its))
    to_server, to_names = policy['egress']
    self.assertEqual(
        [name for name, its in labels.items()
         if _selected(to_server['to'][0]['podSelector'], its)], ['gtrxl-server'])
    self.assertEqual([x['port'] for x in to_server['ports']], [8000])
    self.assertEqual([x['port'] for x in to_names['ports']], [53, 53])

  def test_server_and_learner_are_not_evicted_together(self):
    labels = {x['metadata']['name']: x['spec']['template']['metadata']['labels']
              for x in _of_kind('StatefulSet', 'Deployment')}
    budgets = {
        tuple(sorted(name for name, its in labels.items()
                     if _selected(x['spec']['selector'], its))):
        x['spec']['maxUnavailable'] for x in _of_kind('PodDisruptionBudget')}
    self.assertEqual(budgets, {('gtrxl-learner', 'gtrxl-server'): 1,
                               ('gtrxl-actor',): '50%'})

  @parameterized.parameters('gpu', 'tpu')
  def test_a_learner_on_a_device_differs_only_in_the_device(self, device):
    base, = _documents(_LEARNER)
    other, = _documents(_DEPLOY / 'kubernetes' / device / 'learner.yaml')
    self.assert_starts_a_part(_container(other)['args'])
    resources = _container(other)['resources']
    name = {'gpu': 'nvidia.com/gpu', 'tpu': 'google.com/tpu'}[device]
    self.assertIn(name, resources['limits'])
    self.assertEqual(resources['requests'][name], resources['limits'][name])
    added = set(_container(other)['args']) - set(_container(base)['args'])
    self.assertEqual(added, {'gpu': {'--strategy=mirrored'},
                             'tpu': {'--strategy=tpu', '--tpu=local'}}[device])
    for document in base, other:
      _container(document)['args'] = set(_container(document)['args']) - added
      del _container(document)['resources']
      document['spec']['template']['spec'].pop('nodeSelector', None)
    self.assertEqual(other, base)

  def test_actors_of_an_inference_server_differ_only_in_what_they_call(self):
    base, = _documents(_DEPLOY / 'kubernetes/actors.yaml')
    service, server, admits, leaves = _documents(_INFERENCE / 'inference.yaml')
    actors, = _documents(_INFERENCE / 'actors.yaml')
    container = _container(server)
    self.assertEqual(self.assert_starts_a_part(container['args']), 'inference')
    self.assertEqual(self.assert_starts_a_part(_container(actors)['args']), 'actor')
    (port,), name = service['spec']['ports'], service['metadata']['name']
    self.assertIn({'name': port['targetPort'], 'containerPort': 8001}, container['ports'])
    self.assertContainsSubset(
        {'--host=0.0.0.0', '--port=8001', '--server=gtrxl-server:8000'},
        container['args'])
    labels = {x: y['spec']['template']['metadata']['labels']
              for x, y in (('server', server), ('actors', actors))}
    self.assertTrue(_selected(
        {'matchLabels': service['spec']['selector']}, labels['server']))
    for policy, direction, whose, others in (
        (admits, 'ingress', 'server', 'actors'), (leaves, 'egress', 'actors', 'server')):
      self.assertTrue(_selected(policy['spec']['podSelector'], labels[whose]))
      (rule,) = policy['spec'][direction]
      (to,) = rule.get('from') or rule['to']
      self.assertTrue(_selected(to['podSelector'], labels[others]))
      self.assertFalse(_selected(to['podSelector'], labels[whose]))
      self.assertEqual([x['port'] for x in rule['ports']], [port['port']])
    reverb = next(x['spec'] for x in _of_kind('NetworkPolicy')
                  if x['metadata']['name'] == 'gtrxl-server')
    self.assertTrue(_selected(
        reverb['ingress'][0]['from'][0]['podSelector'], labels['server']))
    for workload, call in (base, '--server=gtrxl-server:8000'), (
        actors, f'--inference={name}:{port["port"]}'):
      _container(workload)['args'].remove(call)
      del workload['spec']['replicas']
    self.assertEqual(actors, base)

  def test_compose_with_an_inference_server(self):
    file, base = (yaml.safe_load((_DEPLOY / name).read_text())
                  for name in ('compose.inference.yaml', 'compose.yaml'))
    for name, service in file['services'].items():
      arguments = [re.sub(r'\$\{\w+:-(.*?)\}', r'\1', x) for x in service['command']]
      self.assertEqual(self.assert_starts_a_part(arguments), name)
    self.assertEqual(file['services']['inference']['extends'],
                     {'file': 'compose.yaml', 'service': 'actor'})
    self.assertIn('actor', base['services'])
    self.assertIn('--inference=inference:8001', file['services']['actor']['command'])
    self.assertIn('--port=8001', file['services']['inference']['command'])

  def test_the_server_of_a_policy(self):
    _, service, deployment, policy = _documents(_SERVING)
    container, labels = _container(deployment), (
        deployment['spec']['template']['metadata']['labels'])
    self.assertEqual(self.assert_starts_a_part(container['args']), 'serve')
    (port,) = container['ports']
    self.assertIn(f'--port={port["containerPort"]}', container['args'])
    self.assertEqual(service['spec']['ports'][0]['targetPort'], port['name'])
    self.assertEqual(service['spec']['selector'], labels)
    for probe in 'startupProbe', 'readinessProbe', 'livenessProbe':
      self.assertEqual(
          container[probe]['httpGet'], {'path': '/healthz', 'port': port['name']})
    (rule,) = policy['spec']['ingress']
    self.assertEqual([x['port'] for x in rule['ports']], [port['containerPort']])
    self.assertTrue(_selected(policy['spec']['podSelector'], labels))
    self.assertFalse(_selected(rule['from'][0]['podSelector'], labels))
    self.assertTrue(container['securityContext']['readOnlyRootFilesystem'])
    volume = f'--policy_dir={container["volumeMounts"][0]["mountPath"]}'
    self.assertIn(volume, container['args'])

  def test_compose(self):
    # It was also checked by hand with the package compose-spec 0.2.1.
    file = yaml.safe_load((_DEPLOY / 'compose.yaml').read_text())
    started = []
    for name, service in file['services'].items():
      arguments = [re.sub(r'\$\{\w+:-(.*?)\}', r'\1', x) for x in service['command']]
      started.append(self.assert_starts_a_part(arguments))
      for argument in arguments:
        if argument.startswith('--server='):
          host, port = argument.removeprefix('--server=').split(':')
          self.assertIn(f'--port={port}', file['services'][host]['command'])
      for port in service.get('ports', []):
        self.assertStartsWith(port, '127.0.0.1:')
        self.assertIn(f'--metrics_port={port.split(":")[2]}', arguments)
      for volume in service.get('volumes', []):
        volume, folder = volume.split(':')
        self.assertIn(volume, file['volumes'])
        self.assertIn(f'--root_dir={folder}', arguments)
      self.assertTrue(service['read_only'], name)
      self.assertEqual(set(service['deploy']['resources']['limits']), {'cpus', 'memory'})
      *_, check = service['healthcheck']['test']
      asked = re.search(r"'localhost', (\d+)|localhost:(\d+)/healthz", check)
      flag = '--port' if asked[1] else '--metrics_port'
      self.assertIn(f'{flag}={asked[1] or asked[2]}', arguments)
      compile(check, name, 'exec')
      self.assertEqual(service.get('depends_on', {}), {} if name == 'server' else {
          'server': {'condition': 'service_healthy'}})
    self.assertCountEqual(started, _PARTS)
    build = file['services']['server']['build']
    self.assertEqual((_DEPLOY / build['context']).resolve(), _ROOT)
    self.assertTrue((_ROOT / build['dockerfile']).exists())

  def test_dockerfile(self):
    text = (_DEPLOY / 'Dockerfile').read_text().replace('\\\n', ' ')
    instructions = [line.split(None, 1) for line in text.splitlines()
                    if line and not line.startswith('#')]
    self.assertContainsSubset({'ARG', 'FROM', 'RUN', 'COPY', 'USER', 'ENTRYPOINT'},
                              {name for name, _ in instructions})
    sent = {x[1:] for x in (_ROOT / '.dockerignore').read_text().splitlines()
            if x.startswith('!')}
    copied = [x for name, rest in instructions if name == 'COPY'
              for x in rest.split()[:-1]]
    self.assertCountEqual(copied, sent)
    for source in copied:
      self.assertTrue((_ROOT / source).exists(), source)
    users = [rest for name, rest in instructions if name == 'USER']
    self.assertEqual(users, ['1000:1000'])
    # A base with TensorFlow: as make does.
    install, = re.findall(r'PIP_CONSTRAINT=\S+ python (-m pip install)', text)
    self.assertRegex((_ROOT / 'Makefile').read_text(),
                     rf'PIP_CONSTRAINT=requirements\S+.lock (?:\S|\n|\\| )+/python {install} ')
    # Otherwise nothing is installed without a hash but the project itself.
    first, project, _ = re.findall(r'pip install (.*?)(?: \|\||;)', text)
    for flag in '--require-hashes', '--no-deps', '--no-build-isolation':
      self.assertIn(flag, first)
    self.assertIn('--no-deps --no-build-isolation -e .', project)
    self.assertIn('pip inspect --local > sbom.json', text)

  @parameterized.parameters('build', 'cpu', 'gpu', 'serve', 'envs')
  def test_the_image_s_packages_are_locked_by_hash(self, name):
    environment = {'python_version': '3.11', 'extra': ''}
    def fits(line):
      marker = requirements.Requirement(line).marker
      return marker is None or marker.evaluate(environment)
    locked = [line for line in (_ROOT / 'requirements.lock').read_text().splitlines()
              if line and not line.startswith('#') and fits(line)]
    versions = {utils.canonicalize_name(line.split('==')[0]):
                re.split('==|;', line)[1].strip() for line in locked}
    found = {}
    for line in (_DEPLOY / f'requirements/{name}.txt').read_text().splitlines():
      if not line.startswith('#'):
        self.assertRegex(line, r'^[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}$')
        package, version = line.split()[0].split('==')
        found[utils.canonicalize_name(package)] = version
    for package, version in found.items():
      # TensorFlow itself pins the packages of CUDA.
      if not (name == 'gpu' and package.startswith('nvidia-')):
        self.assertEqual(version, versions.get(package), package)
    if name != 'build':
      section = {'cpu': 'tensorflow-cpu', 'gpu': 'tensorflow', 'serve': 'aiohttp',
                 'envs': 'minigrid'}[name]
      self.assertContainsSubset({section, 'tf-agents', 'dm-reverb'}, found)


class GcloudTest(_Test):

  def setUp(self):
    super().setUp()
    if not shutil.which('git') or not (_ROOT / '.git').exists():
      self.skipTest('the script sends what git has')

  def run_script(self, *arguments, **settings):
    return subprocess.run(
        ['bash', str(_DEPLOY / 'gcloud.sh'), *arguments], check=False, text=True,
        env={'PATH': os.environ['PATH'], **settings}, capture_output=True)

  @pytest.mark.medium
  def test_a_dry_run_prints_all_that_it_would_do(self):
    for tpu in 'v3-8', '':
      done = self.run_script('--dry_run', 'up', BUCKET='gs://mine', TPU=tpu,
                             GIN_BINDINGS='Experiment.seed = 1')
      self.assertEqual(done.returncode, 0, done.stderr)
      begin = '# python -m '
      parts = [re.split(' (?=--)', line.removeprefix(begin).strip())
               for line in done.stdout.splitlines() if line.startswith(begin)]
      self.assertEqual([self.assert_starts_a_part(x) for x in parts],
                       ['reverb_server', 'learner', 'actor'])
      self.assertIn('--gin_bindings=Experiment.seed = 1', parts[0])
      commands = [shlex.split(line) for line in done.stdout.splitlines()
                  if not line.startswith('#')]
      self.assertEqual({command[0] for command in commands}, {'gcloud'})
      made = [' '.join(command[1:5]) for command in commands]
      self.assertEqual(made, [
          made[0], 'compute firewall-rules create gtrxl-allow',
          'compute firewall-rules create gtrxl-deny',
          'compute instances create gtrxl-server',
          'compute tpus tpu-vm create' if tpu else
          'compute instances create gtrxl-learner',
          'compute instance-templates create gtrxl-actor',
          'compute instance-groups managed create'])
      flags = dict(flag.split('=', 1) for command in commands for flag in command
                   if flag.startswith('--rules') or flag.startswith('--source-tags'))
      self.assertEqual(flags, {'--rules': 'tcp:8000', '--source-tags': 'gtrxl-part'})
      for command in commands[3:6]:
        self.assertIn('gtrxl-part', ' '.join(command))

  @pytest.mark.medium
  def test_everything_created_is_deleted(self):
    made = set()
    for tpu in 'v3-8', '':
      up = self.run_script('--dry_run', 'up', BUCKET='gs://mine', TPU=tpu).stdout
      made.update(re.findall(r'(\S+) create (gtrxl-\S+)', up))
    down = self.run_script('--dry_run', 'down').stdout
    deleted = [(kind, name) for kind, names in
               re.findall(r'(\S+) delete ((?:gtrxl-\S+ )+)', down)
               for name in names.split()]
    self.assertCountEqual(made, deleted)

  @pytest.mark.medium
  def test_no_machine_has_a_public_address(self):
    for tpu in 'v3-8', '':
      up = self.run_script('--dry_run', 'up', BUCKET='gs://mine', TPU=tpu).stdout
      machines = [shlex.split(line) for line in up.splitlines() if re.search(
          '(instances|instance-templates|tpu-vm) create', line)]
      self.assertLen(machines, 3)
      for command in machines:
        self.assertIn('--internal-ips' if 'tpus' in command else '--no-address', command)
      logs = self.run_script('--dry_run', 'logs', 'learner', TPU=tpu).stdout
      self.assertIn('--tunnel-through-iap', logs)
      # gcloud has this flag for TPU VMs in its alpha commands only.
      self.assertStartsWith(logs, 'gcloud alpha' if tpu else 'gcloud compute ssh')

  def test_extras_and_the_copy_of_the_run(self):
    up = self.run_script('--dry_run', 'up', BUCKET='gs://mine', EXTRAS='cpu,envs').stdout
    told = re.findall('--metadata=(.*?)(?: --|$)', ' '.join(
        word for line in up.splitlines() if not line.startswith('#')
        for word in shlex.split(line)))
    source = '^;^source=gs://mine/gtrxl/source.tar.gz;'
    self.assertEqual([x.split(' --')[0] for x in told], [
        f'{source}extras=cpu,envs', f'{source}copy=gs://mine/gtrxl/run;extras=',
        f'{source}extras=cpu,envs'])

  def test_the_service_is_never_root(self):
    startup = (_DEPLOY / 'startup.sh').read_text()
    self.assertEqual(re.findall(r'DynamicUser=(\S+)', startup), ['yes'])
    self.assertIn('SupplementaryGroups=tpu', startup)

  def test_a_restore_that_breaks_off_is_repeated(self):
    startup = (_DEPLOY / 'startup.sh').read_text()
    block = re.search('^if copy=.*?^fi$', startup, re.MULTILINE | re.DOTALL)[0]
    root = pathlib.Path(self.create_tempdir().full_path)
    (root / 'boot.sh').write_text(textwrap.dedent(f'''
        set -euo pipefail
        attribute() {{ echo gs://mine/gtrxl/run; }}
        systemctl() {{ echo copies to the bucket; }}
        sleep() {{ exit 1; }}  # The machine boots again.
        gcloud() {{
          if [ "$2" = ls ]; then
            [ "$ANSWERS" = yes ] && echo gs://mine/gtrxl/run/
          else
            mkdir -p "$5"; touch "$5/first"
            [ "$COMPLETE" = yes ] && touch "$5/last"
          fi
        }}
        folder={root}/private/gtrxl
        ''') + block.replace('/var/lib/private', f'{root}/private'))
    def boot(answers, complete):
      return subprocess.run(
          ['bash', str(root / 'boot.sh')], check=False, stdout=subprocess.PIPE, text=True,
          env={**os.environ, 'ANSWERS': answers, 'COMPLETE': complete}).stdout
    self.assertEqual(boot('no', 'yes') + boot('yes', 'no'), '')
    self.assertFalse((root / 'private/gtrxl').exists())
    self.assertEqual(boot('yes', 'yes'), 'copies to the bucket\n')
    self.assertCountEqual(
        [path.name for path in (root / 'private/gtrxl').iterdir()], ['first', 'last'])

  @parameterized.parameters(
      ('instance-templates create', True), ('firewall-rules create gtrxl-deny', True),
      ('firewall-rules create gtrxl-allow', False), (None, False))
  @pytest.mark.medium
  def test_a_failed_up_deletes_what_it_created(self, fails, deletes):
    folder = pathlib.Path(self.create_tempdir().full_path)
    stub = folder / 'gcloud'
    stub.write_text(f'#!/bin/bash\necho "$@" >> {folder}/calls\n'
                    f'if [[ "$*" == *"{fails}"* ]]; then exit 3; fi\n')
    stub.chmod(0o755)
    done = self.run_script('up', BUCKET='gs://mine',
                           PATH=f'{folder}:{os.environ["PATH"]}')
    self.assertEqual(done.returncode, 3 if fails else 0, done.stderr)
    deleted = re.findall(r'(\S+) delete gtrxl-', (folder / 'calls').read_text())
    self.assertEqual(deleted, [
        'managed', 'instance-templates', 'tpu-vm', 'instances', 'instances',
        'firewall-rules'] if deletes else [])

  def test_wrong_arguments(self):
    for arguments, message in ((['up'], 'BUCKET is not set'),
                               (['--dry_run', 'logs', 'actor'], 'expected server or'),
                               (['start'], 'start: expected up, logs, scale')):
      done = self.run_script(*arguments)
      self.assertEqual(done.returncode, 2)
      self.assertIn(message, done.stderr)


if __name__ == '__main__':
  absltest.main()
