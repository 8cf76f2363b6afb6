package service

import (
	"bytes"
	"context"
	_ "embed"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

// The names of the service at systemd.
const (
	unitName        = "buildnode.service"
	DefaultUnitDir  = "/etc/systemd/system"
	EnvironmentFile = "/etc/buildyard/buildnode.env" // read by the unit if it exists
)

//go:embed buildnode.service.tmpl
var unitText string

var unitTemplate = template.Must(template.New(unitName).Parse(unitText))

// Systemd is the service as a unit of systemd.
type Systemd struct{ file serviceFile }

// NewSystemd returns the service whose unit file is in a directory; "" means DefaultUnitDir.
func NewSystemd(dir string) *Systemd {
	if dir == "" {
		dir = DefaultUnitDir
	}
	return &Systemd{serviceFile{path: filepath.Join(dir, unitName), marker: "buildnode service install"}}
}

// installedNotice is the comment in the unit files that Install writes.
const installedNotice = `Written by "buildnode service install", which replaces this file. ` + editNotice

const editNotice = `Add settings with "systemctl edit buildnode".`

// Render returns the text of the unit file.
func (s *Systemd) Render(d Definition) ([]byte, error) { return renderUnit(installedNotice, d) }

// PackagedUnit returns the unit file of a package that installs the program and nothing else of this package: it has
// the same form as what Install writes.
func PackagedUnit(program, dataDir string) ([]byte, error) {
	return renderUnit("Part of the package buildnode. "+editNotice,
		Definition{Program: program, Args: []string{"run", "--data-dir", dataDir}})
}

func renderUnit(notice string, d Definition) ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	view := struct {
		Notice          string
		EnvironmentFile string
		Env             []string
		Command         string
	}{Notice: notice, EnvironmentFile: EnvironmentFile, Command: quoteUnitWord(d.Program)}
	for _, variable := range d.Env {
		view.Env = append(view.Env, quoteUnitWord(variable))
	}
	for _, arg := range d.Args {
		view.Command += " " + strings.ReplaceAll(quoteUnitWord(arg), "$", "$$")
	}
	var text bytes.Buffer
	if err := unitTemplate.Execute(&text, view); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// quoteUnitWord quotes a word for a unit file: systemd.syntax(7), "Quoting". "%" starts a specifier there. In the
// arguments of a command, but not in its path, "$" starts a variable, which the caller escapes.
func quoteUnitWord(word string) string {
	word = strings.ReplaceAll(word, "%", "%%")
	if word != "" && !strings.ContainsAny(word, " \"'\\;#") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// Install writes the unit, enables it and starts it, and returns what it did. A running service whose unit is the same
// is not restarted.
func (s *Systemd) Install(ctx context.Context, d Definition) (steps []string, err error) {
	text, err := s.Render(d)
	if err != nil {
		return nil, err
	}
	before, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	step, err := s.file.write(text)
	if err != nil {
		return nil, err
	}
	if step != "" {
		steps = append(steps, step)
	}
	if step != "" || before.stale {
		if _, err := runCommand(ctx, "systemctl", "daemon-reload"); err != nil {
			return steps, err
		}
	}
	if !before.Enabled {
		if _, err := runCommand(ctx, "systemctl", "enable", unitName); err != nil {
			return steps, err
		}
		steps = append(steps, "enabled "+unitName)
	}
	return s.start(ctx, before, steps)
}

// start starts the service, or restarts it if its unit has changed.
func (s *Systemd) start(ctx context.Context, before Status, steps []string) ([]string, error) {
	switch {
	case before.Running && len(steps) == 0 && !before.stale:
		return []string{unitName + " is installed and runs; nothing was changed"}, nil
	case before.Running:
		if _, err := runCommand(ctx, "systemctl", "restart", unitName); err != nil {
			return steps, err
		}
		return append(steps, "restarted "+unitName), nil
	}
	// A unit that failed too often is started again only after this.
	_, _ = runCommand(ctx, "systemctl", "reset-failed", unitName)
	if _, err := runCommand(ctx, "systemctl", "start", unitName); err != nil {
		return steps, err
	}
	return append(steps, "started "+unitName), nil
}

// Uninstall stops and disables the service and removes its unit, and returns what it did. VMs continue.
func (s *Systemd) Uninstall(ctx context.Context) (steps []string, err error) {
	before, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	if !before.Installed && !before.Loaded {
		return []string{unitName + " is not installed"}, nil
	}
	if before.Loaded {
		if _, err := runCommand(ctx, "systemctl", "disable", "--now", unitName); err != nil {
			return nil, err
		}
		steps = append(steps, "stopped and disabled "+unitName)
	}
	existed, err := s.file.remove()
	if err != nil {
		return steps, err
	}
	if existed {
		steps = append(steps, "removed "+s.file.path)
	}
	_, err = runCommand(ctx, "systemctl", "daemon-reload")
	return steps, err
}

// unitProperties are those that Status requests.
const unitProperties = "LoadState,ActiveState,SubState,UnitFileState,MainPID,ExecMainCode,ExecMainStatus," +
	"NRestarts,NeedDaemonReload"

// Status returns the state of the service.
func (s *Systemd) Status(ctx context.Context) (Status, error) {
	text, err := s.file.read()
	if err != nil {
		return Status{}, err
	}
	out, err := runCommand(ctx, "systemctl", "show", unitName, "--property="+unitProperties)
	if err != nil {
		return Status{}, err
	}
	status := parseUnitProperties(out)
	status.Manager, status.Name, status.File, status.Installed = "systemd", unitName, s.file.path, text != nil
	return status, nil
}

// parseUnitProperties reads the output of "systemctl show": lines KEY=VALUE.
func parseUnitProperties(text string) (s Status) {
	properties := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		properties[key] = value
	}
	s.Loaded = properties["LoadState"] == "loaded"
	s.Enabled = properties["UnitFileState"] == "enabled" || properties["UnitFileState"] == "enabled-runtime"
	s.State = properties["ActiveState"]
	if detail := properties["SubState"]; detail != "" {
		s.State += " (" + detail + ")"
	}
	s.PID = parseNumber(properties["MainPID"])
	s.Running = s.PID > 0
	s.Restarts = parseNumber(properties["NRestarts"])
	s.stale = properties["NeedDaemonReload"] == "yes"
	switch properties["ExecMainCode"] { // CLD_EXITED, CLD_KILLED and CLD_DUMPED of waitid(2); 0: it has not ended
	case "1":
		s.LastExit = properties["ExecMainStatus"]
	case "2", "3":
		s.LastExit = "signal " + properties["ExecMainStatus"]
	}
	return s
}

// parseNumber returns a number of at least 0; anything else counts as 0.
func parseNumber(text string) int {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}

// LogCommand returns the command that prints the log of the service.
func (s *Systemd) LogCommand(o LogOptions) []string {
	lines := strconv.FormatUint(uint64(o.Lines), 10)
	command := []string{"journalctl", "--unit", unitName, "--no-pager", "--lines", lines}
	if o.Follow {
		command = append(command, "--follow")
	}
	return command
}
