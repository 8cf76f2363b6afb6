// Anka imitates the command line of anka 3, which runs macOS guests on Apple silicon, for tests of a driver on any
// host. It runs no guest system: a guest is processes of the host. It is not a model of what was not found out about
// anka; testdata has the shape of each output with its source, and says what is not confirmed.
//
// # Use
//
// Build it (go build -trimpath -o DIR/anka ./test/fakes/anka) and put DIR first in PATH. The library of a user is
// $HOME/Library/Veertu/Anka (a real one has a space in its path): vm_lib/UUID/config.yaml and img_lib/UUID.ank, which
// has the guest's files as a tar archive. Knobs are in $HOME/anka-knobs. "anka create a 14.5" makes a VM, "anka export
// a FILE" an archive of it.
//
// # Processes
//
// "start" leaves a process behind that is the VM: it holds the fcntl lock of vm_lib/UUID/lock and the host's ports. Its
// child is the guest, which ends with it; see package fakeguest for the guest's programs, files and address.
//
// # Knobs
//
// A knob is a file, or one in the directory NAME for one VM. In addition to those of package fakeguest there are:
//
//	version           of anka (3.5.0)
//	hang              verbs that do not end, separated by spaces
//	license           status of the license (valid); with another one no VM starts
//	license-type      its type (com.veertu.anka.entplus)
//	license-expires   its last day (17-aug-2099)
//	limit             number of VMs that may run (2)
//	no-child          start fails as when a port is taken
//	crash             the guest crashes this long after its start; the VM is "failed" then
//	clone-hold        clone and import do not continue while it exists, after the VM is listed
//	export-hold       export does not continue while it exists, after half of the archive is written
//	disk-full         clone, import and export fail half-way, and so does writing the guest's files
//	disconnect        run ends with 125 before the command is started
//	no-network        show has no address
//
// # Half-made VMs
//
// A clone or import that is killed leaves a VM without an image behind, which is listed and does not start.
package main
