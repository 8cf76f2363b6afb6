package buildnode_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// installAnka builds the program that imitates anka and puts it first in the PATH of a script. Its library and
// knobs are in the script's directory, which is HOME. VMs that still run end with the script.
func installAnka(env *testscript.Env) error {
	dir := filepath.Join(env.WorkDir, ".anka")
	program := filepath.Join(dir, "anka")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../../../test/fakes/anka")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the imitation of anka: %w: %s", err, out)
	}
	env.Setenv("PATH", dir+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Defer(func() {
		vms, _ := os.ReadDir(filepath.Join(env.WorkDir, "Library", "Veertu", "Anka", "vm_lib")) // none without VMs
		for _, vm := range vms {
			stop := exec.Command(program, "stop", "--force", vm.Name())
			stop.Env = append(os.Environ(), "HOME="+env.WorkDir)
			_ = stop.Run()
		}
	})
	return nil
}
