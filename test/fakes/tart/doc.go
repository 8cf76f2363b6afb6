// Tart imitates the command line of tart, which runs macOS guests on Apple silicon, for tests of a driver on any host.
// It runs no guest system: a guest is processes of the host. It is not a model of what was not found out about tart;
// testdata has the shape of each output with its source, and says what is not confirmed.
//
// # Use
//
// Build it (go build -trimpath -o DIR/tart ./test/fakes/tart) and put DIR first in PATH. TART_HOME is the home; next to
// it, in its parent directory, are tart-knobs/, tart-slots/ and dhcpd_leases. TART_KNOBS names another directory of
// knobs. "tart create a --from-ipsw FILE --disk-size 1" makes a VM, whose three files are a template.
//
// # Processes
//
// "run" is the VM: it holds the fcntl lock of config.json, the slot and the screen. Its child is the guest, which ends
// when run ends in any way, and then kills all processes of its commands, also those in other sessions (macOS: only
// those whose parents live). A command has the VM's .guest/home as HOME and working directory, .guest/tmp as TMPDIR,
// and .guest/bin first in PATH, with sudo (no password), shutdown, halt, poweroff, reboot, sync, nc, diskutil, sysctl,
// ifconfig, sw_vers and uname. Absolute paths of the first ones are replaced in all arguments, so that no command of a
// guest ends the host; a script that arrives on standard input is not searched. Other paths are those of the host: a
// test writes below HOME and TMPDIR only.
//
// # Disks
//
// A larger disk has free space behind the guest's partitions, until diskutil repairs the table and resizes the
// container. The sizes are in disk.img, 4 KiB behind its beginning.
//
// The files of HOME are a tar archive in disk.img, 64 KiB behind its beginning. It is read at boot and written at
// shutdown, reboot and by sync; stop, a crash and a killed run lose what came later. The archive depends on the files
// alone, so that a boot without changes leaves the disk as it was. Each boot changes 8 bytes of nvram.bin at 4096. A
// disk that the fake has made boots with its own nvram.bin only; other disks have no files at first. A disk has to be
// larger than 64 KiB and its files.
//
// # Network
//
// The guest's address is 127.64.x.y, made from its MAC and the directory of the knobs, and in the environment of
// commands as FAKE_GUEST_IP; the guest's services listen there. nc takes any host for this address; "nc -d -l PORT"
// listens there. dhcpd_leases has for each MAC an expired lease, the right one, and an older one.
//
// # Timing
//
// The lock is taken within milliseconds. SIGINT is ignored for 200 ms. The guest agent answers after about 50 ms, and
// a shutdown takes 200 ms. A failed ip takes 1 s.
//
// # Knobs
//
// A knob is a file in the directory of knobs, or in its directory NAME for one VM. It is read when it is needed, so
// that it has an effect on running VMs too. Times are in seconds and may have fractions; "never" is a very long time.
//
//	version            text of --version (2.35.0)
//	hang               verbs that do not end, separated by spaces
//	limit              number of VMs (2)
//	slots-dir          directory of the slots: all homes that have the same one share the limit
//	slot-held          time that a slot stays taken after exit code 0
//	leases-file        path of the DHCP leases
//	boot-delay         before the guest's files are there; agent and network count from then on
//	agent-delay        before the guest agent answers
//	network-delay      before the guest has a lease and services
//	shutdown-delay     length of an orderly shutdown (0.2)
//	ignore-shutdown    the guest ignores its shutdown
//	interrupt-delay    time in which run ignores SIGINT (0.2)
//	vnc-delay          before the line with the screen's address
//	no-vnc             no screen and no line
//	screen-share-wait  time until run --vnc fails (1; really 60)
//	vz-error           1, 2 or -9: run fails with this error of the framework
//	no-softnet         run fails with --net-softnet... and --net-host
//	crash              the guest crashes this long after its start, exit code 0
//	network-error      its network attachment is disconnected this long after its start, exit code 0
//	clone-delay        time to copy each file
//	disk-full          clone fails, and so does writing the guest's files
//	ssh                port of the guest's SSH server: admin/admin, password and keyboard-interactive, commands only
//	recovery-partition the recovery partition of all guests follows the container of the system
//	echo-port          ports of echo servers in the guest
//
// An unreadable VM is a directory with a broken config.json; list fails then.
package main
