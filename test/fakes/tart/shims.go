package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// Variables of the guest's processes.
const (
	envVM      = "TART_FAKE_VM"       // directory of the VM
	envAddress = "TART_FAKE_GUEST_IP" // address on which the guest's services listen
)

// shims are the programs in the guest's bin directory, which is the first one in PATH: this program under other names.
// None of them does anything to the host.
var shims map[string]func(ctx context.Context, args []string) int

func init() {
	shims = map[string]func(context.Context, []string) int{
		"sudo": sudo, "shutdown": askForEnd, "halt": askForEnd, "poweroff": askForEnd,
		"reboot":    func(context.Context, []string) int { return askGuest(kindReboot) },
		"sync":      func(context.Context, []string) int { return askGuest(kindSync) },
		"systemctl": missing, "init": missing, "telinit": missing, "launchctl": missing,
		"nc": netcat,
	}
	for name, show := range facts {
		shims[name] = fact(show)
	}
}

// hostProgram matches the absolute paths of programs that have a shim.
var hostProgram = regexp.MustCompile(
	`(/usr)?/s?bin/(sudo|shutdown|halt|poweroff|reboot|systemctl|init|telinit|launchctl|diskutil|nc|sysctl|ifconfig|` +
		`sw_vers|uname)\b`)

// redirect replaces absolute paths of such programs in a command, wherever they are: the guest shares the host's files.
func redirect(args []string, bin string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = hostProgram.ReplaceAllString(arg, strings.ReplaceAll(bin, "$", "$$")+"/$2")
	}
	return out
}

func missing(context.Context, []string) int {
	fmt.Fprintln(os.Stderr, "this program does not exist in the guest")
	return 1
}

// askGuest sends a request to the guest that this process runs in.
func askGuest(kind string) int {
	dir := os.Getenv(envVM)
	code, err := callGuest(&vm{dir: dir}, guestSocket, guestRequest{Kind: kind}, nil, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "no guest:", err)
		return 1
	}
	return code
}

func askForEnd(_ context.Context, args []string) int {
	if len(args) > 0 && args[0] == "-r" {
		return askGuest(kindReboot)
	}
	return askGuest(kindShutdown)
}

// sudo runs a command as the same user: options are dropped, variables are set.
func sudo(ctx context.Context, args []string) int {
	for len(args) > 0 {
		name, value, isVariable := strings.Cut(args[0], "=")
		switch {
		case args[0] == "-u" && len(args) > 1:
			args = args[1:]
		case strings.HasPrefix(args[0], "-"):
		case isVariable:
			_ = os.Setenv(name, value)
		default:
			return become(ctx, redirect(args, guestPath(os.Getenv(envVM), guestBin)))
		}
		args = args[1:]
	}
	return 1
}

func become(ctx context.Context, args []string) int {
	if shim, found := shims[filepath.Base(args[0])]; found {
		return shim(ctx, args[1:])
	}
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ()) //nolint:gosec // a command of the guest
	}
	fmt.Fprintf(os.Stderr, "sudo: %s: %v\n", args[0], err)
	return 1
}

// netcat connects its input and output with a port of the guest, or with -l listens there for one connection.
func netcat(ctx context.Context, args []string) int {
	c, err := connect(ctx, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nc:", err)
		return 1
	}
	defer c.Close()
	go func() {
		_, _ = io.Copy(c, os.Stdin)
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	_, _ = io.Copy(os.Stdout, c)
	return 0
}

func connect(ctx context.Context, args []string) (net.Conn, error) {
	if len(args) < 2 {
		return nil, errors.New("want HOST PORT or -l PORT")
	}
	host, port := args[len(args)-2], args[len(args)-1]
	address := net.JoinHostPort(os.Getenv(envAddress), port)
	if host != "-l" {
		return new(net.Dialer).DialContext(ctx, "tcp4", address)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.Accept()
}
