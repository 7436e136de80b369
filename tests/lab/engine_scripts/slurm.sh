# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Slurm with three slurmd on one machine, munge, slurmdbd and MariaDB. Each node has two GPUs, which
# are /dev/zero, because slurmd only needs device files.
mkdir -p /run/munge /run/mysqld /srv/shared /var/spool/slurm/{state,n1,n2,n3} /var/log/slurm
chown munge: /run/munge
chown mysql: /run/mysqld
chown slurm: /var/spool/slurm/state /var/log/slurm
chmod 1777 /srv/shared
cd /srv/shared || exit
cp "$OLDPWD"/* . 2>/dev/null || true
for number in 0 1; do
  touch "/dev/nvidia$number"
  mount --bind /dev/zero "/dev/nvidia$number"
done
[ -s /etc/munge/munge.key ] || { head -c 128 /dev/urandom >/etc/munge/munge.key; }
chown munge: /etc/munge /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
setpriv --reuid munge --regid munge --init-groups munged
mariadbd --user=mysql --skip-networking --socket=/run/mysqld/mysqld.sock >mariadb.log 2>&1 &
patience mariadb.log mariadb -e 'SELECT 1'
mariadb -e "CREATE DATABASE slurm_acct_db; CREATE USER slurm@localhost IDENTIFIED BY 'lab';
GRANT ALL ON slurm_acct_db.* TO slurm@localhost"

host=$(hostname -s)
cat >/etc/slurm/slurmdbd.conf <<EOF
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageUser=slurm
StoragePass=lab
StorageLoc=slurm_acct_db
EOF
chown slurm: /etc/slurm/slurmdbd.conf
chmod 600 /etc/slurm/slurmdbd.conf
cat >/etc/slurm/slurm.conf <<EOF
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurm/state
SlurmdSpoolDir=/var/spool/slurm/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
MpiDefault=none
ReturnToService=2
GresTypes=gpu
NodeName=n[1-3] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17003] CPUs=2 Gres=gpu:2 State=UNKNOWN
PartitionName=cpu Nodes=n[1-2] Default=YES State=UP
PartitionName=debug Nodes=n3 State=UP
EOF
echo 'Name=gpu File=/dev/nvidia[0-1]' >/etc/slurm/gres.conf
setpriv --reuid slurm --regid slurm --init-groups slurmdbd -D >slurmdbd.log 2>&1 &
patience slurmdbd.log sacctmgr -n show cluster
sacctmgr -i add cluster lab >/dev/null || true
setpriv --reuid slurm --regid slurm --init-groups slurmctld -D >slurmctld.log 2>&1 &
patience slurmctld.log scontrol ping
for node in n1 n2 n3; do slurmd -D -N "$node" >"slurmd-$node.log" 2>&1 & done
three_idle() { [ "$(sinfo -h -N -p cpu,debug -o %T | grep -c '^idle$')" = 3 ]; }
patience slurmctld.log three_idle

job() { # LINE...: writes job.sh
  printf '%s\n' '#!/bin/bash' "$@" >job.sh
}

batch() { # LINE...: runs a job script and prints its output
  job "$@"
  rm -f batch.out
  sbatch --wait -o batch.out job.sh
  cat batch.out
}

# The page's steps 2 to 4.
install_prolog() { # PARTITIONS: the page's line `partitions=...`
  cp /usr/local/share/cudaguard/slurm/task-prolog /etc/slurm/cudaguard-task-prolog
  chmod 755 /etc/slurm/cudaguard-task-prolog
  grep -qxF "$(cat path)" /etc/slurm/cudaguard-task-prolog
  sed -i "s/^partitions=\$/$1/" /etc/slurm/cudaguard-task-prolog
  grep -qxF "$1" /etc/slurm/cudaguard-task-prolog
  grep -qxF "$(cat setting)" /etc/slurm/slurm.conf || cat setting >>/etc/slurm/slurm.conf
  scontrol reconfigure
  sleep 3
}

append_prolog() { # FILE: adds a block of the page to the script
  cat "$1" >>/etc/slurm/cudaguard-task-prolog
}
