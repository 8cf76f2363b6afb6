package fakeguest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Variables of the guest's processes.
const (
	envVM      = "FAKE_GUEST_VM" // directory of the VM
	envAddress = "FAKE_GUEST_IP" // address on which the guest's services listen
)

// Shim is a program in the guest's bin directory. It gets its arguments without its name; the result is the exit code.
type Shim func(ctx context.Context, args []string) int

// shims are the programs in the guest's bin directory, which is the first one in PATH: the fake under other names. None
// of them does anything to the host.
var shims map[string]Shim

// RunShim runs the program of a guest that the fake was called as, if its name is that of one.
func RunShim(ctx context.Context, args []string) (code int, isShim bool) {
	run, isShim := shims[filepath.Base(args[0])]
	if !isShim {
		return 0, false
	}
	return run(ctx, args[1:]), true
}

// IsShim reports whether a name is that of such a program.
func IsShim(name string) bool { return shims[name] != nil }

func init() {
	shims = map[string]Shim{
		"sudo": sudo, "shutdown": askForEnd, "halt": askForEnd, "poweroff": askForEnd,
		"reboot":    func(context.Context, []string) int { return askGuest(Reboot) },
		"sync":      func(context.Context, []string) int { return askGuest(Sync) },
		"systemctl": missing, "init": missing, "telinit": missing, "launchctl": missing,
		"diskutil": missing, "nc": netcat,
	}
}

// AddShim adds or replaces a program in the bin directory of all guests. It is called before a guest starts.
func AddShim(name string, run Shim) { shims[name] = run }

// VMDir returns the directory of the VM that this program of a guest runs in.
func VMDir() string { return os.Getenv(envVM) }

// hostProgram matches the absolute paths of programs that have a shim.
var hostProgram = sync.OnceValue(func() *regexp.Regexp {
	names := slices.Sorted(maps.Keys(shims))
	return regexp.MustCompile(`(/usr)?/s?bin/(` + strings.Join(names, "|") + `)\b`)
})

// Redirect replaces absolute paths of such programs in a command, wherever they are: the guest shares the host's files.
func Redirect(args []string, binDir string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = hostProgram().ReplaceAllString(arg, strings.ReplaceAll(binDir, "$", "$$")+"/$2")
	}
	return out
}

func missing(context.Context, []string) int {
	fmt.Fprintln(os.Stderr, "this program does not exist in the guest")
	return 1
}

// askGuest sends a request to the guest that this process runs in.
func askGuest(kind string) int {
	code, err := Request{Kind: kind}.call(filepath.Join(VMDir(), guestSocket), nil, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "no guest:", err)
		return 1
	}
	return code
}

func askForEnd(_ context.Context, args []string) int {
	if len(args) > 0 && args[0] == "-r" {
		return askGuest(Reboot)
	}
	return askGuest(Shutdown)
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
			return become(ctx, Redirect(args, Path(os.Getenv(envVM), bin)))
		}
		args = args[1:]
	}
	return 1
}

func become(ctx context.Context, args []string) int {
	if code, isShim := RunShim(ctx, args); isShim {
		return code
	}
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	fmt.Fprintf(os.Stderr, "sudo: %s: %v\n", args[0], err)
	return 1
}

// netcat connects its input and output with a port of the guest, or with -l listens there for one connection. It ends
// when the other side has sent everything, whatever of its input is left. With -d it has no input.
func netcat(ctx context.Context, args []string) int {
	c, err := connect(ctx, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nc:", err)
		return 1
	}
	defer c.Close()
	if !slices.Contains(args, "-d") {
		go func() {
			_, _ = io.Copy(c, os.Stdin)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
		}()
	}
	_, _ = io.Copy(os.Stdout, c)
	return 0
}

func connect(ctx context.Context, args []string) (net.Conn, error) {
	if len(args) < 2 {
		return nil, errors.New("want HOST PORT or -l PORT")
	}
	host, port := args[len(args)-2], args[len(args)-1]
	address := serviceAddress(os.Getenv(envAddress), port)
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
