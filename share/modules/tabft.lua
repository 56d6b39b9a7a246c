-- TabFT for Lmod. Works from where it is installed (PREFIX/share/tabft/modules/tabft/VERSION.lua); a copy in a site's own
-- tree needs the prefix written into the next line.
local prefix = nil

local version = myModuleVersion()
if prefix == nil then
    prefix = myFileName():gsub("/share/tabft/modules/tabft/[^/]*$", "")
end

help([[
TabFT fine-tunes tabular foundation models (TabPFN and its kin), with the ensemble's estimators sharded over ranks.

  tabft --help          the commands
  man tabft             the manual
  tabft doctor          what this machine and its Slurm offer
Job scripts to copy lie in $TABFT_HOME/share/tabft/jobs.
]])
whatis("Name: TabFT")
whatis("Version: " .. version)
whatis("Description: fine-tunes tabular foundation models on Slurm clusters, bit-identical for every number of ranks")

conflict("tabft")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
-- An empty entry stands for the system's own pages.
append_path("MANPATH", "")
setenv("TABFT_HOME", prefix)
