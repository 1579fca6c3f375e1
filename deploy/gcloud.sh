#!/bin/bash
# A run on Google Cloud: the learner on a TPU VM (or a CPU VM if TPU is empty), the Reverb
# server on a VM, and a managed group of spot VMs for actors. All run the committed code,
# behind firewall rules that the script creates.
#
# No VM has a public address. NETWORK therefore needs Cloud NAT in ZONE's region, for
# packages, Private Google Access for the bucket, and a firewall rule that admits
# 35.235.240.0/20 to port 22, through which `logs` and `fetch` come.
#
#   BUCKET=gs://mine deploy/gcloud.sh up
#   BUCKET=gs://mine deploy/gcloud.sh --dry_run up    prints the commands
#   deploy/gcloud.sh logs server|learner     follows the part's log
#   deploy/gcloud.sh scale 16                sets the number of actors
#   deploy/gcloud.sh fetch runs/cloud        copies the run's folder to this machine
#   deploy/gcloud.sh down                    deletes everything but the bucket's copy of
#                                            the run's folder
set -euo pipefail

RUN=${RUN:-gtrxl}                       # Prefix of all resources' names.
ZONE=${ZONE:-us-central1-a}
NETWORK=${NETWORK:-default}
BUCKET=${BUCKET:-}                      # For source and run, as in gs://mine.
EXTRAS=${EXTRAS:-cpu}                   # Of setup.py, on VMs without a TPU.
GIN_FILE=${GIN_FILE:-gin/gtrxl/t_maze_30_cpu.gin}
GIN_BINDINGS=${GIN_BINDINGS:-}          # One setting a line.
ACTORS=${ACTORS:-4}
TPU=${TPU-v3-8}                         # On one host.
TPU_VERSION=${TPU_VERSION:-tpu-vm-tf-2.15.1-pjrt}  # See docs/deployment.md.
SERVER_TYPE=${SERVER_TYPE:-e2-standard-4}
LEARNER_TYPE=${LEARNER_TYPE:-c2-standard-16}
ACTOR_TYPE=${ACTOR_TYPE:-e2-standard-2}

here=$(cd "$(dirname "$0")" && pwd)
source="$BUCKET/$RUN/source.tar.gz"
copy="$BUCKET/$RUN/run"  # Of the learner's folder.
dry_run=

fail() {
  echo "gcloud.sh: $1" >&2
  exit 2
}

run() {
  if [ -n "$dry_run" ]; then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

# Prints the flags that all parts share, one a line.
settings() {
  echo "--gin_file=$GIN_FILE"
  while read -r binding; do
    if [ -n "$binding" ]; then echo "--gin_bindings=$binding"; fi
  done <<< "$GIN_BINDINGS"
}

# Writes a part's command, one argument a line, to a file that its VM reads.
part() {
  printf '%s\n' "$@" > "$folder/$2"
  settings >> "$folder/$2"
  if [ -n "$dry_run" ]; then echo "# python $(tr '\n' ' ' < "$folder/$2")"; fi
}

# Prints the metadata that startup.sh reads: for part $1, with extras $2. Of the parts
# only the learner's folder is copied.
metadata() {
  local told="source=$source"
  if [ "$1" = binaries.learner ]; then told="$told;copy=$copy"; fi
  echo "--metadata=^;^$told;extras=$2"  # Extras may have commas.
  echo "--metadata-from-file=startup-script=$here/startup.sh,part=$folder/$1"
}

create_vm() {  # NAME TYPE PART SCOPE
  readarray -t told < <(metadata "$3" "$EXTRAS")
  run gcloud compute instances create "$1" --zone="$ZONE" --machine-type="$2" \
    --network="$NETWORK" --no-address --tags="$RUN-part,$1" \
    --image-family=debian-12 --image-project=debian-cloud --boot-disk-size=50GB \
    --scopes="$4,logging-write" "${told[@]}"
}

# Deletes what a failed `up` has created. Before `up` has created its first rule, whatever
# has the run's name belongs to another run.
clean_up() {
  rm -rf "$folder"
  if [ "$state" = created ]; then
    echo 'gcloud.sh: up failed: deleting what it created' >&2
    down
  fi
}

up() {
  [ -n "$BUCKET" ] || fail 'BUCKET is not set: expected a bucket, as in gs://mine'
  folder=$(mktemp -d)
  state=begun
  trap clean_up EXIT

  git -C "$here/.." archive --format=tar.gz --output="$folder/source.tar.gz" HEAD
  run gcloud storage cp "$folder/source.tar.gz" "$source"

  # Reverb has no authentication: its port is open only to the run's parts. Without the
  # second rule, those of the default network would admit all its machines.
  run gcloud compute firewall-rules create "$RUN-allow" --network="$NETWORK" \
    --direction=INGRESS --action=ALLOW --rules=tcp:8000 --priority=900 \
    --source-tags="$RUN-part" --target-tags="$RUN-server"
  state=created
  run gcloud compute firewall-rules create "$RUN-deny" --network="$NETWORK" \
    --direction=INGRESS --action=DENY --rules=tcp:8000 --priority=950 \
    --source-ranges=0.0.0.0/0 --target-tags="$RUN-server"

  part -m binaries.reverb_server --port=8000
  create_vm "$RUN-server" "$SERVER_TYPE" binaries.reverb_server storage-ro
  if [ -n "$dry_run" ]; then
    server=SERVER
  else
    server=$(gcloud compute instances describe "$RUN-server" --zone="$ZONE" \
      --format='value(networkInterfaces[0].networkIP)')
  fi

  if [ -n "$TPU" ]; then
    part -m binaries.learner --root_dir=/var/lib/gtrxl "--server=$server:8000" \
      --strategy=tpu --tpu=local
    readarray -t told < <(metadata binaries.learner '')
    run gcloud compute tpus tpu-vm create "$RUN-learner" --zone="$ZONE" \
      --accelerator-type="$TPU" --version="$TPU_VERSION" --network="$NETWORK" \
      --internal-ips --tags="$RUN-part" --scopes=storage-rw,logging-write "${told[@]}"
  else
    part -m binaries.learner --root_dir=/var/lib/gtrxl "--server=$server:8000"
    create_vm "$RUN-learner" "$LEARNER_TYPE" binaries.learner storage-rw
  fi

  part -m binaries.actor "--server=$server:8000"
  readarray -t told < <(metadata binaries.actor "$EXTRAS")
  run gcloud compute instance-templates create "$RUN-actor" \
    --machine-type="$ACTOR_TYPE" --network="$NETWORK" --no-address --tags="$RUN-part" \
    --image-family=debian-12 --image-project=debian-cloud --boot-disk-size=20GB \
    --provisioning-model=SPOT --scopes=storage-ro,logging-write "${told[@]}"
  run gcloud compute instance-groups managed create "$RUN-actors" --zone="$ZONE" \
    --template="$RUN-actor" --size="$ACTORS"
  state=done
}

# Runs a command on a part's VM, which may be a TPU VM. For these only `alpha` has tunnels.
ssh_to() {  # PART COMMAND
  if [ "$1" = learner ] && [ -n "$TPU" ]; then
    run gcloud alpha compute tpus tpu-vm ssh "$RUN-$1" --zone="$ZONE" --tunnel-through-iap \
      --command="$2"
  else
    run gcloud compute ssh "$RUN-$1" --zone="$ZONE" --tunnel-through-iap --command="$2"
  fi
}

logs() {
  case ${1:-} in
    server | learner) ssh_to "$1" 'sudo journalctl --unit=gtrxl --follow' ;;
    *) fail "logs ${1:-}: expected server or learner" ;;
  esac
}

scale() {
  run gcloud compute instance-groups managed resize "$RUN-actors" --zone="$ZONE" \
    --size="${1:?expected a number of actors}"
}

fetch() {
  to=${1:?expected a folder to make}
  # The folder belongs to the service, behind a link that scp does not follow.
  ssh_to learner 'sudo rm -rf /tmp/gtrxl_run; sudo cp -rL /var/lib/gtrxl /tmp/gtrxl_run
    sudo chmod -R a+rX /tmp/gtrxl_run'
  if [ -n "$TPU" ]; then
    run gcloud alpha compute tpus tpu-vm scp --recurse --zone="$ZONE" --tunnel-through-iap \
      "$RUN-learner:/tmp/gtrxl_run" "$to"
  else
    run gcloud compute scp --recurse --zone="$ZONE" --tunnel-through-iap \
      "$RUN-learner:/tmp/gtrxl_run" "$to"
  fi
}

# Continues when a resource does not exist: the learner's VM is of one kind or the other,
# and TPU need not be set as it was for `up`.
down() {
  run gcloud compute instance-groups managed delete "$RUN-actors" --zone="$ZONE" \
    --quiet || true
  run gcloud compute instance-templates delete "$RUN-actor" --quiet || true
  run gcloud compute tpus tpu-vm delete "$RUN-learner" --zone="$ZONE" --quiet || true
  run gcloud compute instances delete "$RUN-learner" --zone="$ZONE" --quiet || true
  run gcloud compute instances delete "$RUN-server" --zone="$ZONE" --quiet || true
  run gcloud compute firewall-rules delete "$RUN-allow" "$RUN-deny" --quiet || true
  if [ -n "$BUCKET" ]; then run gcloud storage rm "$source" || true; fi
}

if [ "${1:-}" = --dry_run ]; then
  dry_run=yes
  shift
fi
case ${1:-} in
  up | logs | scale | fetch | down) "$@" ;;
  *) fail "${1:-nothing}: expected up, logs, scale, fetch or down" ;;
esac
