#!/bin/sh
# A checkpoint of torch.save whose pickle calls os.system("touch pwned") when Python loads it: refused by that name;
# no program is started, no file is opened for writing, no connection made.
set -eu
: "${TABFT_DATA:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failed=0
bad() {
    echo "$*"
    failed=1
}
cd -- "$work"
status=0
tabft-model convert "$TABFT_DATA/ckpt/os_system.ckpt" out.safetensors >out 2>err || status=$?
[ "$status" = 3 ] || bad "status $status"
grep -q 'GLOBAL: posix.system' err || bad "$(cat err)"
{ [ ! -e pwned ] && [ ! -e out.safetensors ]; } || bad 'something was made'
command -v strace >/dev/null || { echo 'no strace: the calls were not looked at'; [ "$failed" = 0 ] && exit 77; exit 1; }
# LeakSanitizer does not work under ptrace, and forks.
ASAN_OPTIONS=${ASAN_OPTIONS+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS
strace -f -e trace=execve,execveat,openat,open,creat,connect,socket,unlink,rename,renameat2,fork,vfork,clone,clone3 \
    -o calls tabft-model convert "$TABFT_DATA/ckpt/os_system.ckpt" out.safetensors >out 2>err || status=$?
grep -q 'os_system.ckpt' calls || { echo 'strace sees nothing here'; exit 77; }
[ "$(grep -c execve calls)" = 1 ] || bad "runs a program: $(grep execve calls)"
# A thread is no process; the sanitizers start one.
if grep -v CLONE_THREAD calls | grep -E 'O_WRONLY|O_RDWR|O_CREAT|creat\(|connect\(|socket\(|unlink|rename|fork\(|clone'; then
    bad 'writes, connects or forks'
fi
exit "$failed"
