package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

var runOptions = optionTable{
	"no-graphics": noValue, "graphics": noValue, "serial": noValue, "serial-path": takesValue, "no-audio": noValue,
	"no-clipboard": noValue, "recovery": noValue, "vnc": noValue, "vnc-experimental": noValue, "disk": takesValue,
	"dir": takesValue, "rosetta": takesValue, "nested": noValue, "root-disk-opts": takesValue, "suspendable": noValue,
	"capture-system-keys": noValue, "no-trackpad": noValue, "no-pointer": noValue, "no-keyboard": noValue,
	"net-bridged": takesValue, "net-softnet": noValue, "net-softnet-allow": takesValue, "net-softnet-block": takesValue,
	"net-softnet-expose": takesValue, "net-host": noValue, "provisioning-opts": takesValue,
}

// softnetOptions need the program softnet.
var softnetOptions = []string{"net-softnet", "net-softnet-allow", "net-softnet-block", "net-softnet-expose", "net-host"}

// vzErrors are the texts of the framework's errors, by the value of the knob.
var vzErrors = map[string]string{
	"1":  `Error Domain=VZErrorDomain Code=1 "The virtual machine failed to start."`,
	"2":  `Error Domain=VZErrorDomain Code=2 "Failed to lock auxiliary storage."`,
	"-9": `Error Domain=VZErrorDomain Code=-9 "The virtual machine failed to start for security reasons."`,
}

// machine is a running VM: the process that holds the lock, and the guest's process.
type machine struct {
	*vm
	call  *call
	guest *fakeguest.Process
	slot  *slots
}

// runVM runs a VM in the foreground. It holds the lock of config.json until the process ends.
func runVM(ctx context.Context, c *call) error {
	signal.Ignore(syscall.SIGINT)
	v, err := c.existing(c.name())
	if err != nil {
		return fail(1, "Error: %v", err)
	}
	lock, err := cliproc.TakeLock(v.path(configFile))
	if errors.Is(err, cliproc.ErrLocked) {
		return fail(2, "VM \"%s\" is already running!", v.name)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	m := &machine{vm: v, call: c}
	if err := m.check(ctx); err != nil {
		return err
	}
	config, err := v.settleMAC(lock)
	if err != nil {
		return err
	}
	if m.slot, err = v.takeSlot(); err != nil {
		return err
	}
	if exists(v.path(stateFile)) {
		fmt.Println("restoring VM state from a snapshot...")
		fmt.Println("resuming VM...")
	}
	if err := m.startGuest(ctx, v.knobs.Address(config.MACAddress)); err != nil {
		return err
	}
	if err := m.watch(ctx); err != nil {
		return err
	}
	m.slot.free(v.knobs.Seconds(v.name, knobSlotHeld, 0))
	return nil
}

// check fails for options and knobs with which the VM does not start.
func (m *machine) check(ctx context.Context) error {
	for _, option := range softnetOptions {
		if m.call.has(option) && m.knobs.IsSet(m.name, knobNoSoftnet) {
			return fail(1, "Error: softnet not found in PATH")
		}
	}
	for _, disk := range m.call.options["disk"] {
		path, _, _ := strings.Cut(disk, ":")
		if !strings.HasPrefix(disk, "nbd://") && !exists(path) {
			return fail(1, "Error: disk %s does not exist", path)
		}
	}
	if text, found := vzErrors[m.knobs.Text(m.name, knobVZError, "")]; found {
		return fail(1, "%s", text)
	}
	if m.call.has("vnc") { // needs an address of the guest's Screen Sharing
		fakeguest.Pause(ctx, m.knobs.Seconds(m.name, knobScreenShareWait, time.Second))
		return fail(1, "Error: failed to determine the VM's IP address")
	}
	return nil
}

// settleMAC assigns the VM a new address if another running VM of this home has the same one.
func (v *vm) settleMAC(lock *os.File) (config, error) {
	own, err := readLocked(lock)
	if err != nil {
		return own, err
	}
	for _, name := range v.runningOthers() {
		other, err := v.vm(name).config()
		if err != nil || !strings.EqualFold(other.MACAddress, own.MACAddress) {
			continue
		}
		fmt.Println("There is already a running VM with the same MAC address!")
		fmt.Println("Resetting VM to assign a new MAC address...")
		own.MACAddress = randomMAC()
		return own, rewriteLocked(lock, own)
	}
	return own, nil
}

// startGuest starts the guest's process.
func (m *machine) startGuest(ctx context.Context, address string) (err error) {
	_ = os.Remove(m.path(fakeguest.ControlFile))
	m.guest, err = fakeguest.Start(ctx, []string{guestVerb, m.name}, guestEnvironment(m.vm, address))
	if err == nil && m.call.has("vnc-experimental") && m.call.has("no-graphics") {
		go m.serveScreen(ctx)
	}
	return err
}

// watch waits for the end of the guest, a signal, or a knob that ends it.
func (m *machine) watch(ctx context.Context) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	time.AfterFunc(m.knobs.Seconds(m.name, knobInterruptDelay, 200*time.Millisecond), func() {
		signal.Notify(signals, syscall.SIGINT)
	})
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	begin := time.Now()
	for {
		select {
		case line, alive := <-m.guest.Lines:
			return m.ended(line, alive)
		case s := <-signals:
			if ended, err := m.signaled(s); ended {
				return err
			}
		case <-ticks.C:
			if line := m.brokenBy(time.Since(begin)); line != "" {
				m.guest.PowerOff()
				fmt.Println(line)
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// endLines are the lines with which a VM ends by a knob.
var endLines = map[string]string{
	knobCrash: "guest has stopped the virtual machine due to error: " + internalError,
	knobNetworkError: "virtual machine's network attachment <VZNATNetworkDeviceAttachment: 0x600000000000> has been " +
		"disconnected with error: " + internalError,
}

const internalError = `Error Domain=VZErrorDomain Code=1 "Internal Virtualization error."`

// brokenBy returns the line of the knob that ends the VM at an age; "" = none.
func (m *machine) brokenBy(age time.Duration) string {
	for knob, line := range endLines {
		if m.knobs.IsSet(m.name, knob) && age >= m.knobs.Seconds(m.name, knob, 0) {
			return line
		}
	}
	return ""
}

// ended handles a line of the guest's process, or its end.
func (m *machine) ended(line string, alive bool) error {
	fault, faulty := strings.CutPrefix(line, fakeguest.LineFault)
	switch {
	case faulty:
		fmt.Println("guest has stopped the virtual machine due to error:", fault)
	case !alive:
		fmt.Println("guest has stopped the virtual machine due to error: the guest's process has ended")
	case exists(m.path(stateFile)): // suspended
	default:
		fmt.Println("guest has stopped the virtual machine")
	}
	m.guest.PowerOff()
	return nil
}

func (m *machine) signaled(s os.Signal) (ended bool, err error) {
	switch s {
	case syscall.SIGINT:
		fmt.Println("Stopping VM...")
		m.guest.PowerOff()
		return true, nil
	case syscall.SIGUSR1:
		if !m.call.has("suspendable") {
			m.guest.PowerOff()
			return true, fail(1, "Error: the VM was not started with --suspendable")
		}
		err = m.guest.Suspend()
	}
	return false, err
}
