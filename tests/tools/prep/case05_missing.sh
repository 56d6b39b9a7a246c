#!/bin/sh
# Case 05: what is missing follows from the kind of the column and from --na, is counted by spelling, and is the same for
# every block.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
input=$(case_of 05)/input.csv
pack --target label "$input" -o "$work/default.tbf"
said 'input.csv:6:7: column score is text because of "-"'
said 'column level: 1 of 6 cells are missing (empty 1)'
blocks='1 5 23 64'
every_way --target label --na '-,NA,nan,NaN' "$input"
said 'column score: 5 of 6 cells are missing (empty 1, "-" 1, "NA" 1, "nan" 1, "NaN" 1)'
grep -q 'column ion' "$work/err" && bad 'ion has missing cells'
cat >"$work/expected.csv" <<'END'
ion,level,score,label
NA,None,1.5,yes
K,low,,no
NA,high,,yes
CA,null,,no
MG,,,yes
CL,N/A,,no
END
cat_is "$work/ways.tbf" "$work/expected.csv"
tabft-prep info "$work/ways.tbf" | grep -q 'ion  5 texts' || bad 'ion has not 5 texts'
tabft-prep info "$work/ways.tbf" | grep -q 'level  5 texts' || bad 'level has not 5 texts'
refused 3 'input.csv:6:7: "-" in column score is no number' --numeric score "$input"
pack --na '-,NA,nan,NaN' --na-text 'NA,null' "$input" -o "$work/text.tbf"
said 'column ion: 2 of 6 cells are missing ("NA" 2)'
said 'column level: 2 of 6 cells are missing (empty 1, "null" 1)'
exit "$failed"
