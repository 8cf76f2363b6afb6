package qemu

import (
	"encoding/binary"
	"fmt"
	"strings"
)

const (
	seedBytes     = 64
	exitCannotRun = 126 // a shell's code for a program that exists but cannot run
)

// reseedCode reads 64 bytes from stdin, writes them to /dev/urandom and has the kernel take a new
// key from its pool immediately, which no shell command does. It exits with 0 when all of that
// succeeded. x86-64 Linux, no libraries:
//
//	sub rsp,64 · read(0,rsp,64) must be 64 · open("/dev/urandom",O_WRONLY)
//	write(fd,rsp,64) · ioctl(fd,RNDRESEEDCRNG) must be 0 · exit
const reseedCode = "" +
	"\x48\x83\xec\x40" + // sub rsp,64
	"\x31\xc0\x31\xff\x48\x89\xe6\xba\x40\x00\x00\x00\x0f\x05" + // read
	"\x83\xf8\x40\x75\x3e" + // cmp eax,64; jne fail
	"\xb8\x02\x00\x00\x00\x48\x8d\x3d\x3e\x00\x00\x00\xbe\x01\x00\x00\x00\x31\xd2\x0f\x05" + // open
	"\x85\xc0\x78\x25" + // test eax,eax; js fail
	"\x89\xc7\xb8\x01\x00\x00\x00\x48\x89\xe6\xba\x40\x00\x00\x00\x0f\x05" + // write
	"\xb8\x10\x00\x00\x00\xbe\x07\x52\x00\x00\x0f\x05" + // ioctl 0x5207
	"\x85\xc0\x75\x04\x31\xff\xeb\x05" + // test eax,eax; jne fail; xor edi,edi; jmp out
	"\xbf\x01\x00\x00\x00" + // fail: mov edi,1
	"\xb8\x3c\x00\x00\x00\x0f\x05" + // out: exit
	"/dev/urandom\x00"

// reseedProgram is that code as an ELF file: header, one segment, code.
func reseedProgram() []byte {
	const load, headers = 0x400000, 64 + 56
	size := uint64(headers + len(reseedCode))
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, 2)    // a program
	b = le.AppendUint16(b, 0x3e) // x86-64
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, load+headers) // entry
	b = le.AppendUint64(b, 64)           // program headers follow this one
	b = le.AppendUint64(b, 0)            // no section headers
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{64, 56, 1, 64, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	b = le.AppendUint32(b, 1) // loaded
	b = le.AppendUint32(b, 5) // readable, executable
	for _, v := range []uint64{0, load, load, size, size, 0x1000} {
		b = le.AppendUint64(b, v)
	}
	return append(b, reseedCode...)
}

// reseedScript returns a script that writes the program where the guest permits execution, runs it
// with the script's stdin and removes it. Its first argument names the file.
func reseedScript() string {
	var octal strings.Builder
	for _, c := range reseedProgram() {
		fmt.Fprintf(&octal, "\\%03o", c)
	}
	return `umask 077
for d in /run /dev/shm /tmp /var/tmp; do
  printf '` + octal.String() + `' >"$d/$1" && chmod 700 "$d/$1" || { rm -f "$d/$1"; continue; }
  "$d/$1"
  code=$?
  rm -f "$d/$1"
  [ $code = 126 ] || exit $code
done
exit 126`
}
