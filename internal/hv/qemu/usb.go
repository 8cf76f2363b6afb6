package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// usbPrefix begins the IDs of USB devices that were plugged in while the guest runs. They are not
// part of the layout: a save unplugs them.
const usbPrefix = "usbdev"

// firstUSBFdSet are the numbers of the file sets of USB devices, above all others.
const firstUSBFdSet = 1 << 30

// emulatedDevices are the devices that QEMU emulates, by kind.
var emulatedDevices = map[string]string{
	"tablet": "usb-tablet", "mouse": "usb-mouse", "keyboard": "usb-kbd", "storage": "usb-storage",
}

// usbStickBytes is the size of an emulated stick.
const usbStickBytes = 4 << 20

// usbHost is where a Linux host lists its USB devices.
type usbHost struct {
	sysfsDir string // a directory for each device, by location
	devDir   string // its device file, by bus and number
}

var linuxUSB = usbHost{sysfsDir: "/sys/bus/usb/devices", devDir: "/dev/bus/usb"}

// acceptUSB refuses devices that do not exist, or that another VM uses.
func (d *Driver) acceptUSB(s hv.Spec) error {
	for _, dev := range s.PCSettings().USB {
		if kind, ok := dev.Emulated(); ok {
			if emulatedDevices[kind] == "" {
				return hv.RefusedError("USB device %q: tablet, mouse, keyboard and storage can be emulated",
					dev.Location)
			}
			continue
		}
		if _, err := d.usb.deviceFile(dev.Location); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usbFreeLocked(s)
}

// usbFreeLocked refuses devices of the host that another VM uses.
func (d *Driver) usbFreeLocked(s hv.Spec) error {
	for _, dev := range s.PCSettings().USB {
		if _, made := dev.Emulated(); made {
			continue
		}
		if id := d.usbUserLocked(dev, s.ID); id != "" {
			return hv.RefusedError("USB device %s is in use by VM %s", dev.Location, id)
		}
	}
	return nil
}

// usbUserLocked returns another VM that runs or is being started with the device; "" for none.
func (d *Driver) usbUserLocked(dev hv.USBDevice, self string) string {
	for id, m := range d.machines {
		if id == self {
			continue
		}
		if slices.Contains(m.startingUSB, dev) ||
			(m.currentRun() != nil && slices.Contains(m.spec().PCSettings().USB, dev)) {
			return id
		}
	}
	return ""
}

// releaseUSBReservation ends the reservation of a start for its USB devices: a running VM has them.
func (d *Driver) releaseUSBReservation(m *machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.startingUSB = nil
}

// deviceFile returns the device file of the device that is plugged in at a location, which is a validated
// name.
func (h usbHost) deviceFile(location string) (string, error) {
	var numbers [2]int
	for i, name := range []string{"busnum", "devnum"} {
		b, err := os.ReadFile(filepath.Join(h.sysfsDir, location, name))
		if errors.Is(err, fs.ErrNotExist) {
			return "", hv.RefusedError("USB device %s of this host not found", location)
		}
		if err != nil {
			return "", err
		}
		if numbers[i], err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
			return "", fmt.Errorf("read %s of USB device %s: %w", name, location, err)
		}
	}
	return filepath.Join(h.devDir, fmt.Sprintf("%03d", numbers[0]), fmt.Sprintf("%03d", numbers[1])), nil
}

// pluggedUSB returns the USB devices that are plugged into QEMU, by ID.
func pluggedUSB(ctx context.Context, q *qmpConn) (map[string]bool, error) {
	var objects []struct {
		Name string `json:"name"`
	}
	if err := q.call(ctx, "qom-list", map[string]string{"path": "/machine/peripheral"}, &objects); err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, o := range objects {
		if strings.HasPrefix(o.Name, usbPrefix) {
			ids[o.Name] = true
		}
	}
	return ids, nil
}

// plugUSB plugs in the devices of the spec that are not plugged in yet.
func (m *machine) plugUSB(ctx context.Context, q *qmpConn) error {
	devices := m.spec().PCSettings().USB
	if len(devices) == 0 {
		return nil
	}
	plugged, err := pluggedUSB(ctx, q)
	if err != nil {
		return err
	}
	for i, dev := range devices {
		if plugged[usbID(i)] {
			continue
		}
		if err := m.plugDevice(ctx, q, i, dev); err != nil {
			return fmt.Errorf("attach USB device %s: %w", dev.Location, err)
		}
	}
	return nil
}

func usbID(i int) string { return usbPrefix + strconv.Itoa(i) }

func (m *machine) plugDevice(ctx context.Context, q *qmpConn, i int, dev hv.USBDevice) (err error) {
	args := map[string]any{"id": usbID(i), "bus": "usb.0"}
	switch kind, made := dev.Emulated(); {
	case !made: // QEMU may not open it: it gets the device as an open file
		args["driver"] = "usb-host"
		args["hostdevice"], err = m.addHostUSBFD(ctx, q, i, dev.Location)
	case kind == "storage":
		args["driver"] = emulatedDevices[kind]
		args["drive"], err = m.addStickBlockdev(ctx, q, i)
	default:
		args["driver"] = emulatedDevices[kind]
	}
	if err != nil {
		return err
	}
	return q.call(ctx, "device_add", args, nil)
}

func (m *machine) addHostUSBFD(ctx context.Context, q *qmpConn, i int, location string) (string, error) {
	path, err := m.driver.usb.deviceFile(location)
	if err != nil {
		return "", err
	}
	return addUSBFD(ctx, q, i, path)
}

// addStickBlockdev creates the block node of an emulated stick and returns its name.
func (m *machine) addStickBlockdev(ctx context.Context, q *qmpConn, i int) (string, error) {
	if err := removeUSBStick(ctx, q, i); err != nil {
		return "", err
	}
	path := filepath.Join(m.dir, usbID(i)+".raw")
	if err := ensureUSBStick(path); err != nil {
		return "", err
	}
	file, err := addUSBFD(ctx, q, i, path)
	if err != nil {
		return "", err
	}
	return usbID(i), q.call(ctx, "blockdev-add", map[string]any{
		"driver": "raw", "node-name": usbID(i),
		"file": map[string]any{"driver": "file", "filename": file, "locking": "off"},
	}, nil)
}

// addUSBFD opens a file for QEMU and returns the name by which QEMU knows it.
func addUSBFD(ctx context.Context, q *qmpConn, i int, path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	set := firstUSBFdSet + i
	if err := q.callWithFile(ctx, "add-fd", map[string]int{"fdset-id": set}, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("/dev/fdset/%d", set), nil
}

// ensureUSBStick makes the file of an emulated stick.
func ensureUSBStick(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(usbStickBytes)
}

// unplugUSB unplugs all USB devices that were plugged in: a state must not contain a device that a
// command line does not have.
func (m *machine) unplugUSB(ctx context.Context, q *qmpConn) error {
	plugged, err := pluggedUSB(ctx, q)
	if err != nil {
		return err
	}
	for id := range plugged {
		if err := q.call(ctx, "device_del", map[string]string{"id": id}, nil); err != nil {
			return err
		}
	}
	for try := 0; len(plugged) > 0; try++ {
		if try == 100 {
			return errors.New("detaching a USB device timed out")
		}
		if plugged, err = pluggedUSB(ctx, q); err != nil {
			return err
		}
		if err := sleep(ctx, time.Duration(min(len(plugged), 1))*10*time.Millisecond); err != nil {
			return err
		}
	}
	for i := range m.spec().PCSettings().USB {
		if err := removeUSBStick(ctx, q, i); err != nil {
			return err
		}
	}
	return nil
}

// removeUSBStick closes QEMU's open files for an unplugged device, if any.
func removeUSBStick(ctx context.Context, q *qmpConn, i int) error {
	for _, step := range []struct {
		command string
		args    any
	}{
		{"blockdev-del", map[string]string{"node-name": usbID(i)}},
		{"remove-fd", map[string]int{"fdset-id": firstUSBFdSet + i}},
	} {
		var refused *remoteError // it had none
		if err := q.call(ctx, step.command, step.args, nil); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return nil
}
