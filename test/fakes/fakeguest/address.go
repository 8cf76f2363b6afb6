package fakeguest

import (
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

// Address is the loopback address that stands for the guest's, by its MAC and the directory of the knobs: tests of
// several hosts that run at the same time may have the same MAC.
func (k Knobs) Address(mac string) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, string(k)+"\x00"+strings.ToLower(mac))
	sum := h.Sum32()
	return fmt.Sprintf("127.64.%d.%d", sum>>8%254+1, sum%254+1)
}

// ServicePort returns the port of the host on which a guest's service listens that has a port in the guest: another one
// where only root may open that.
func ServicePort(port int) int {
	if port < 1024 && os.Geteuid() != 0 {
		return port + 20000
	}
	return port
}

// serviceAddress returns the host's address of a service of the guest.
func serviceAddress(guest, port string) string {
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(ServicePort(n))
	}
	return net.JoinHostPort(guest, port)
}
