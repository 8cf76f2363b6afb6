package service

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Label is the name of the service at launchd.
const Label = "io.github.buildyard.buildnode"

// launchdPath is the PATH of the agent. That of launchd has neither Homebrew nor /usr/local.
const launchdPath = "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// Exit codes of launchctl, which are error numbers of macOS.
const (
	codeIOError       = 5   // bootstrap of a service that is loaded, or still being removed
	codeInProgress    = 36  // bootout that has not ended yet
	codeNotFound      = 113 // no such service in the domain
	codeNoSuchDomain  = 125 // the user has no graphical session
	codeNoSuchProcess = 3   // bootout of a service that is not loaded
)

const (
	removalTimeout   = 40 * time.Second // longer than ExitTimeOut in the file
	bootstrapTimeout = 5 * time.Second  // while launchd still removes what it no longer lists
	pollInterval     = 200 * time.Millisecond
)

//go:embed buildnode.plist.tmpl
var plistText string

var plistTemplate = template.Must(template.New(Label).Funcs(template.FuncMap{"xml": escapeXML}).Parse(plistText))

// escapeXML escapes the text of an XML element.
func escapeXML(text string) (string, error) {
	var out bytes.Buffer
	err := xml.EscapeText(&out, []byte(text))
	return out.String(), err
}

// Launchd is the service as a LaunchAgent of launchd, in the graphical session of a user: macOS guests need its
// keychain.
type Launchd struct {
	file    serviceFile
	logFile string
	domain  string // of the session, gui/UID
}

// NewLaunchd returns the service of the user with an ID and a home directory, whose file is in a directory; "" means
// Library/LaunchAgents of the home directory.
func NewLaunchd(dir, home string, uid int) *Launchd {
	if dir == "" {
		dir = filepath.Join(home, "Library", "LaunchAgents")
	}
	return &Launchd{
		file:    serviceFile{path: filepath.Join(dir, Label+".plist"), marker: "buildnode service install"},
		logFile: filepath.Join(home, "Library", "Logs", "buildnode.log"),
		domain:  "gui/" + strconv.Itoa(uid),
	}
}

// Render returns the property list of the LaunchAgent.
func (l *Launchd) Render(d Definition) ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	type variable struct{ Name, Value string }
	view := struct {
		Label, LogFile string
		Args           []string
		Env            []variable
	}{Label: Label, LogFile: l.logFile, Args: slices.Concat([]string{d.Program}, d.Args)}
	values := map[string]string{"PATH": launchdPath}
	for _, text := range d.Env {
		name, value, _ := strings.Cut(text, "=")
		values[name] = value
	}
	for name, value := range values {
		view.Env = append(view.Env, variable{name, value})
	}
	slices.SortFunc(view.Env, func(a, b variable) int { return strings.Compare(a.Name, b.Name) })
	var text bytes.Buffer
	if err := plistTemplate.Execute(&text, view); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

func (l *Launchd) target() string { return l.domain + "/" + Label }

// Install writes the property list and loads it, which starts the agent, and returns what it did. A running service
// whose file is the same is not restarted.
func (l *Launchd) Install(ctx context.Context, d Definition) (steps []string, err error) {
	text, err := l.Render(d)
	if err != nil {
		return nil, err
	}
	former, err := l.file.read()
	if err != nil {
		return nil, err
	}
	before, err := l.Status(ctx)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(former, text) && before.Loaded {
		return l.start(ctx, before)
	}
	// The former service ends before its file is replaced: what is loaded is then always what the file has.
	if before.Loaded {
		if err := l.unload(ctx); err != nil {
			return nil, err
		}
		steps = append(steps, "stopped the former "+Label)
	}
	step, err := l.file.write(text)
	if err != nil {
		return steps, err
	}
	if step != "" {
		steps = append(steps, step)
	}
	if err := l.load(ctx); err != nil {
		return steps, err
	}
	return append(steps, "loaded "+Label+" into "+l.domain+": it runs now, and after each login"), nil
}

// start starts a loaded service if it does not run.
func (l *Launchd) start(ctx context.Context, before Status) ([]string, error) {
	if before.Running {
		return []string{Label + " is installed and runs; nothing was changed"}, nil
	}
	if _, err := runCommand(ctx, "launchctl", "kickstart", l.target()); err != nil {
		return nil, err
	}
	return []string{"started " + Label}, nil
}

// load loads the service from its file. launchd refuses that while it is still removing the former one.
func (l *Launchd) load(ctx context.Context) error {
	// A service that its user has disabled would not be loaded.
	if _, err := runCommand(ctx, "launchctl", "enable", l.target()); err != nil {
		return l.explain(err)
	}
	for end := time.Now().Add(bootstrapTimeout); ; {
		_, err := runCommand(ctx, "launchctl", "bootstrap", l.domain, l.file.path)
		if err == nil || exitCode(err) != codeIOError && exitCode(err) != codeInProgress || time.Now().After(end) {
			return l.explain(err)
		}
		if status, statusErr := l.Status(ctx); statusErr == nil && status.Loaded {
			return nil
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// explain adds what to do to an error of launchctl.
func (l *Launchd) explain(err error) error {
	switch exitCode(err) {
	case codeNoSuchDomain:
		return fmt.Errorf("%w; this user has no graphical session: log in on the Mac's screen, or enable automatic "+
			"login and restart it; %s is loaded with the login", err, l.file.path)
	case codeIOError:
		return fmt.Errorf("%w; check that \"plutil -lint %s\" is OK and that the program exists", err, l.file.path)
	}
	return err
}

// unload ends the service and waits until launchd has removed it.
func (l *Launchd) unload(ctx context.Context) error {
	_, err := runCommand(ctx, "launchctl", "bootout", l.target())
	switch exitCode(err) {
	case codeInProgress, codeNotFound, codeNoSuchProcess:
	default:
		if err != nil {
			return l.explain(err)
		}
	}
	for end := time.Now().Add(removalTimeout); ; {
		status, err := l.Status(ctx)
		if err != nil || !status.Loaded {
			return err
		}
		if time.Now().After(end) {
			return farm.Refused("launchd has not removed %s within %v; log out and in again", Label, removalTimeout)
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Uninstall ends the service and removes its file, and returns what it did. VMs continue.
func (l *Launchd) Uninstall(ctx context.Context) (steps []string, err error) {
	before, err := l.Status(ctx)
	if err != nil {
		return nil, err
	}
	if before.Loaded {
		if err := l.unload(ctx); err != nil {
			return nil, err
		}
		steps = append(steps, "stopped "+Label)
	}
	existed, err := l.file.remove()
	if err != nil {
		return steps, err
	}
	if existed {
		steps = append(steps, "removed "+l.file.path)
	}
	if len(steps) == 0 {
		steps = []string{Label + " is not installed"}
	}
	return steps, nil
}

// Status returns the state of the service.
func (l *Launchd) Status(ctx context.Context) (Status, error) {
	text, err := l.file.read()
	if err != nil {
		return Status{}, err
	}
	status := Status{}
	out, err := runCommand(ctx, "launchctl", "print", l.target())
	switch code := exitCode(err); {
	case err == nil:
		status = parseLaunchdService(out)
	case code == codeNotFound || code == codeNoSuchDomain:
		status.State = "not loaded"
	default:
		return Status{}, err
	}
	status.Manager, status.Name, status.File, status.Installed = "launchd", Label, l.file.path, text != nil
	status.Enabled = status.Installed
	return status, nil
}

// parseLaunchdService reads the output of "launchctl print" for a service: lines "key = value" between the outer
// braces. Inner braces enclose lists, which are skipped.
func parseLaunchdService(text string) Status {
	s := Status{Loaded: true}
	depth := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(line, "{"):
			depth++
		case line == "}":
			depth--
		case depth == 1:
			key, value, _ := strings.Cut(line, " = ")
			s.setLaunchdValue(key, value)
		}
	}
	return s
}

func (s *Status) setLaunchdValue(key, value string) {
	switch key {
	case "state":
		s.State = value
		s.Running = value == "running"
	case "pid":
		s.PID = parseNumber(value)
	case "runs":
		s.Restarts = max(0, parseNumber(value)-1)
	case "last exit code":
		code, _, _ := strings.Cut(value, ":") // newer systems add a name: "78: EX_CONFIG"
		if _, err := strconv.Atoi(code); err == nil {
			s.LastExit = code
		}
	case "last terminating signal":
		s.LastExit = "signal " + value
	}
}

// LogCommand returns the command that prints the log of the service.
func (l *Launchd) LogCommand(o LogOptions) []string {
	command := []string{"tail", "-n", strconv.FormatUint(uint64(o.Lines), 10)}
	if o.Follow {
		command = append(command, "-F") // the file may be replaced
	}
	return append(command, l.logFile)
}
