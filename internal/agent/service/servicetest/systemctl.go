package servicetest

import (
	"fmt"
	"os"
	"path/filepath"
)

// UnitDirVariable is the environment variable with the directory of the unit files.
const UnitDirVariable = "FAKE_UNIT_DIR"

// Systemctl is the main function of a program that behaves like systemctl. It knows one unit.
func Systemctl() {
	run("systemctl", map[string]command{
		"daemon-reload": reloadUnits, "enable": enableUnit, "disable": disableUnit, "start": startUnit,
		"restart": startUnit, "reset-failed": resetFailed, "show": showUnit,
	})
}

func unitFile(unit string) (string, bool) {
	text, err := os.ReadFile(filepath.Join(os.Getenv(UnitDirVariable), unit))
	return string(text), err == nil
}

func reloadUnits(s state, _ []string) *failure {
	text, found := unitFile("buildnode.service")
	if !found {
		s.remove("loaded")
		return nil
	}
	s.set("loaded", text)
	return nil
}

func missingUnit(s state, unit string) *failure {
	if s.has("loaded") {
		return nil
	}
	return &failure{5, "Failed to start " + unit + ": Unit " + unit + " not found."}
}

func enableUnit(s state, args []string) *failure {
	if _, found := unitFile(args[0]); !found {
		return &failure{1, "Failed to enable unit: Unit file " + args[0] + " does not exist."}
	}
	s.set("enabled", "")
	return nil
}

func disableUnit(s state, _ []string) *failure {
	s.remove("enabled", "running")
	return nil
}

func startUnit(s state, args []string) *failure {
	if f := missingUnit(s, args[0]); f != nil {
		return f
	}
	text, _ := s.get("loaded")
	s.set("running", text)
	return nil
}

func resetFailed(s state, args []string) *failure { return missingUnit(s, args[0]) }

func showUnit(s state, args []string) *failure {
	loaded, isLoaded := s.get("loaded")
	if !isLoaded {
		fmt.Print("LoadState=not-found\nActiveState=inactive\nSubState=dead\nUnitFileState=\nMainPID=0\n" +
			"ExecMainCode=0\nExecMainStatus=0\nNRestarts=0\nNeedDaemonReload=no\n")
		return nil
	}
	active, pid, file, reload := "inactive\nSubState=dead", 0, "disabled", "no"
	if s.has("running") {
		active, pid = "active\nSubState=running", PID
	}
	if s.has("enabled") {
		file = "enabled"
	}
	if text, _ := unitFile(args[0]); text != loaded {
		reload = "yes"
	}
	fmt.Printf("LoadState=loaded\nActiveState=%s\nUnitFileState=%s\nMainPID=%d\nExecMainCode=0\nExecMainStatus=0\n"+
		"NRestarts=0\nNeedDaemonReload=%s\n", active, file, pid, reload)
	return nil
}
