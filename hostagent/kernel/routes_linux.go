// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// Route is a route of the main table by which packets leave an interface.
type Route struct {
	V6     bool
	MTU    int    // 0 if the route has the interface's MTU
	Change string // the command that changes the route, without the attributes to change
}

// Routes returns the routes of an interface, except routes of link-local addresses.
func Routes(i *net.Interface) (routes []Route, err error) {
	const size, main = 12, 254 // size of struct rtmsg; number of the main table
	const destination, output, gateway, priority, source, metrics = 1, 4, 5, 6, 7, 8
	const mtu = 2 // attribute of the MTU in the metrics
	err = netlinkRead(unix.RTM_GETROUTE, unix.NLM_F_DUMP, make([]byte, size), func(m []byte) {
		if len(m) < size || m[4] != main || m[7] != unix.RTN_UNICAST {
			return
		}
		all := attributes(m[size:])
		number := func(b []byte) uint32 {
			if len(b) != 4 {
				return 0
			}
			return binary.NativeEndian.Uint32(b)
		}
		if int(number(all[output])) != i.Index {
			return
		}
		r := Route{V6: m[0] == unix.AF_INET6, MTU: int(number(attributes(all[metrics])[mtu]))}
		command := []string{"ip", "route", "change", "default"}
		if r.V6 {
			command = []string{"ip", "-6", "route", "change", "default"}
		}
		if to, ok := netip.AddrFromSlice(all[destination]); ok {
			if to.IsLinkLocalUnicast() {
				return
			}
			command[len(command)-1] = fmt.Sprintf("%v/%d", to, m[1])
		}
		if via, ok := netip.AddrFromSlice(all[gateway]); ok {
			command = append(command, "via", via.String())
		}
		command = append(command, "dev", i.Name)
		if from, ok := netip.AddrFromSlice(all[source]); ok {
			command = append(command, "src", from.String())
		}
		if n := number(all[priority]); n > 0 {
			command = append(command, "metric", fmt.Sprint(n))
		}
		if binary.NativeEndian.Uint32(m[8:])&unix.RTNH_F_ONLINK != 0 {
			command = append(command, "onlink")
		}
		r.Change = strings.Join(command, " ")
		routes = append(routes, r)
	})
	return routes, err
}
