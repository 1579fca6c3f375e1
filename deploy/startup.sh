#!/bin/bash
# Runs when a VM of gcloud.sh boots: installs the library, once, and runs the VM's part as
# the service `gtrxl`, which restarts on failure.
set -euo pipefail

attribute() {
  curl --silent --fail --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

mkdir -p /opt/gtrxl_tf
cd /opt/gtrxl_tf
if [ ! -e .installed ]; then
  apt-get update --quiet
  apt-get install --yes --quiet python3-venv libosmesa6  # MuJoCo draws with it.
  gcloud storage cp "$(attribute source)" source.tar.gz
  tar --extract --gzip --file=source.tar.gz
  # The site packages of a TPU VM's image include its TensorFlow.
  python3 -m venv --clear --system-site-packages .venv
  extras=$(attribute extras)
  if [ -n "$extras" ]; then
    PIP_CONSTRAINT=requirements.lock .venv/bin/python -m pip install --no-cache-dir \
      -e ".[online,$extras]"
  else  # On a TPU VM. The image's TensorFlow stays: see docs/deployment.md.
    grep -vE '^((tensorflow|tensorflow-cpu|keras)==|#|$)' requirements.lock > rest.txt
    .venv/bin/python -m pip install --no-cache-dir --no-deps -r rest.txt -e .
  fi
  touch .installed
fi

# TPU devices belong to root: a group of their own gives them to the service.
groupadd --system --force tpu
for device in /dev/accel* /dev/vfio/*; do
  if [ -e "$device" ]; then
    chgrp tpu "$device"
    chmod g+rw "$device"
  fi
done

# The learner's folder is copied to the bucket, and a new machine begins with the copy.
folder=/var/lib/private/gtrxl
if copy=$(attribute copy); then
  if [ ! -e "$folder" ]; then
    # It tries until the copy is complete: a folder that lacks something would be copied
    # back, and the rest deleted.
    until there=$(gcloud storage ls "${copy%/*}/"); do sleep 30; done
    if grep --quiet --fixed-strings --line-regexp "$copy/" <<< "$there"; then
      mkdir -p -m 700 /var/lib/private
      until gcloud storage rsync --recursive "$copy" "$folder.partial"; do sleep 30; done
      mv "$folder.partial" "$folder"
    fi
  fi
  systemctl is-active --quiet gtrxl-copy.timer || systemd-run --unit=gtrxl-copy \
    --on-active=5min --on-unit-inactive=5min \
    "$(command -v gcloud)" storage rsync --recursive \
    --delete-unmatched-destination-objects "$folder" "$copy"
fi

readarray -t part < <(attribute part)
exec systemd-run --unit=gtrxl --collect --property=DynamicUser=yes \
  --property=SupplementaryGroups=tpu --property=LimitMEMLOCK=infinity \
  --property=StateDirectory=gtrxl --property=WorkingDirectory=/opt/gtrxl_tf \
  --property=Restart=on-failure --property=RestartSec=5 \
  --property=TimeoutStopSec=120 --setenv=PYTHONDONTWRITEBYTECODE=1 \
  --setenv=MPLCONFIGDIR=/tmp --setenv=TF_CPP_MIN_LOG_LEVEL=2 \
  /opt/gtrxl_tf/.venv/bin/python "${part[@]}"
