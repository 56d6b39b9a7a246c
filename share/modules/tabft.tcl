#%Module1.0
# TabFT for Environment Modules. Works from where it is installed (PREFIX/share/tabft/modules/tabft/VERSION); a copy in a
# site's own tree needs the prefix written into the next line.
set prefix ""

set version [file tail $ModulesCurrentModulefile]
if {$prefix eq ""} {
    regsub {/share/tabft/modules/tabft/[^/]*$} [file normalize $ModulesCurrentModulefile] "" prefix
}

proc ModulesHelp {} {
    puts stderr {TabFT fine-tunes tabular foundation models (TabPFN and its kin), with the ensemble's estimators sharded over ranks.

  tabft --help          the commands
  man tabft             the manual
  tabft doctor          what this machine and its Slurm offer
Job scripts to copy lie in $TABFT_HOME/share/tabft/jobs.}
}
module-whatis "TabFT $version: fine-tunes tabular foundation models on Slurm clusters, bit-identical for every number of ranks"

conflict tabft
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
# An empty entry stands for the system's own pages.
append-path MANPATH ""
setenv TABFT_HOME $prefix
