package fakeguest

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Process is the guest's process as the process of its VM has it. The guest ends with its input, so it ends with the
// process of the VM in any case.
type Process struct {
	Lines <-chan string // what the guest reports; closed at its end
	cmd   *exec.Cmd
	input io.WriteCloser
}

// Start starts the fake again as the guest's process, with these arguments and this environment.
func Start(ctx context.Context, args, env []string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.CommandContext(ctx, program, args...)}
	p.cmd.Args[0] = filepath.Base(os.Args[0]) // not that of a shim
	p.cmd.Env, p.cmd.Stderr = env, os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := make(chan string)
	p.Lines = lines
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return p, nil
}

// Suspend asks the guest to suspend itself.
func (p *Process) Suspend() error {
	_, err := io.WriteString(p.input, LineSuspend+"\n")
	return err
}

// PowerOff ends the guest without a shutdown.
func (p *Process) PowerOff() {
	_ = p.input.Close()
	for range p.Lines { // until its output ends
	}
	_ = p.cmd.Wait()
}

// Environment is the environment of all processes of a guest, except what its fake adds.
func Environment(vmDir, address, user string) []string {
	path := []string{Path(vmDir, bin), "/bin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"}
	return []string{
		"PATH=" + strings.Join(path, ":"), "HOME=" + Path(vmDir, Home), "TMPDIR=" + Path(vmDir, tmp),
		"USER=" + user, "LOGNAME=" + user, "SHELL=/bin/sh", envVM + "=" + vmDir, envAddress + "=" + address,
	}
}

// AddressInGuest returns the address of the guest that this process runs in.
func AddressInGuest() string { return os.Getenv(envAddress) }
