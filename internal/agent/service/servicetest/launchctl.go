package servicetest

import (
	"fmt"
	"os"
	"path"
	"strings"

	"howett.net/plist"
)

// Files of the state that a test may create:
const (
	NoSession   = "no-session"   // the user has no graphical session
	SlowRemoval = "slow-removal" // a removed service is listed once more
	Stopped     = "stopped"      // services do not run
)

// Launchctl is the main function of a program that behaves like launchctl.
func Launchctl() {
	run("launchctl", map[string]command{
		"bootstrap": bootstrap, "bootout": bootout, "kickstart": kickstart, "print": printService,
		"enable": enableService,
	})
}

func bootstrap(s state, args []string) *failure {
	if s.has(NoSession) {
		return &failure{125, "Bootstrap failed: 125: Domain does not support specified action"}
	}
	label, ok := labelOf(args[1])
	if !ok || s.has("job "+label) || s.has("removed "+label) || s.has("disabled "+label) {
		return &failure{5, "Bootstrap failed: 5: Input/output error"}
	}
	s.set("job "+label, args[1])
	return nil
}

// labelOf returns the label of a property list that launchd would load.
func labelOf(file string) (string, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", false
	}
	var job struct {
		Label     string   `plist:"Label"`
		Arguments []string `plist:"ProgramArguments"`
	}
	_, err = plist.Unmarshal(text, &job)
	return job.Label, err == nil && job.Label != "" && len(job.Arguments) > 0
}

func bootout(s state, args []string) *failure {
	label := path.Base(args[0])
	if !s.has("job " + label) {
		return &failure{3, "Boot-out failed: 3: No such process"}
	}
	s.remove("job "+label, Stopped)
	if s.has(SlowRemoval) {
		s.set("removed "+label, "")
		return &failure{36, "Boot-out failed: 36: Operation now in progress"}
	}
	return nil
}

func enableService(s state, args []string) *failure {
	s.remove("disabled " + path.Base(args[0]))
	return nil
}

func kickstart(s state, args []string) *failure {
	if f := missingService(s, args[0]); f != nil {
		return f
	}
	s.remove(Stopped)
	return nil
}

func missingService(s state, target string) *failure {
	domain, label := path.Split(target)
	if s.has("job " + label) {
		return nil
	}
	return &failure{113, fmt.Sprintf("Could not find service %q in domain for user %s", label,
		strings.Replace(path.Clean(domain), "/", ": ", 1))}
}

func printService(s state, args []string) *failure {
	label := path.Base(args[0])
	if s.has("removed " + label) {
		s.remove("removed " + label)
		fmt.Printf("%s = {\n\tstate = SIGTERMed\n}\n", args[0])
		return nil
	}
	if f := missingService(s, args[0]); f != nil {
		return f
	}
	file, _ := s.get("job " + label)
	status := fmt.Sprintf("\tstate = running\n\n\tpid = %d\n", PID)
	if s.has(Stopped) {
		status = "\tstate = not running\n\n"
	}
	fmt.Printf("%s = {\n\tpath = %s\n%s\targuments = {\n\t\tstate = no state\n\t}\n\truns = 3\n"+
		"\tlast exit code = 1\n}\n", args[0], file, status)
	return nil
}
