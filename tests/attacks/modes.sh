#!/bin/sh
# R34: who may read what is written follows from the umask and the folder, not from how it is written.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
for writer in $writers; do
    for pair in 002:664 022:644 027:640 077:600; do
        rm -f out
        (umask "${pair%:*}" && write_by "$writer" out >/dev/null 2>&1)
        [ "$(stat -c %a out)" = "${pair#*:}" ] || fail "$writer under umask ${pair%:*}: mode $(stat -c %a out)"
    done
done

# A folder with setgid gives its group to what is written in it.
for group in $(id -G) 12345; do [ "$group" = "$(id -g)" ] || break; done
mkdir team
if chgrp "$group" team 2>/dev/null; then
    chmod 2775 team
    for writer in $writers; do
        (umask 002 && write_by "$writer" "team/$writer" >/dev/null 2>&1)
        [ "$(stat -c %g:%a "team/$writer")" = "$group:664" ] || fail "$writer in a setgid folder: $(stat -c %g:%a "team/$writer")"
    done
fi

# Read-only inputs do, a folder that may not be written to does not. Root may do anything: as nobody where that can be.
nobody() { "$@"; }
if [ "$(id -u)" = 0 ]; then
    command -v setpriv >/dev/null || exit 0
    nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
    chmod 755 .
    cp -- "$sample" "$(command -v tabft-prep)" . && chmod 755 tbf_sample tabft-prep
    nobody ./tbf_sample 2>said || [ "$(wc -l <said)" = 1 ] || { echo 'nobody cannot run programs here'; exit 0; }
    sample=./tbf_sample
fi
chmod 444 table.csv
mkdir open closed
chmod 777 open
chmod 555 closed
nobody "$sample" write open/out 3
status_of nobody "$sample" write closed/out 3
{ [ "$status" = 4 ] && grep -q 'Permission denied; check the permissions' said; } || fail "a closed folder: status $status"
chmod 733 open # may be written to, not listed: nothing but the last fsync is lost
nobody "$sample" write open/unlisted 3
cp -- open/out secret && chmod 600 secret
if [ "$(id -u)" = 0 ]; then
    status_of nobody "$sample" list secret
    { [ "$status" = 3 ] && grep -q 'secret: cannot open: Permission denied' said; } || fail "an unreadable input: status $status"
fi
chmod 755 closed open
