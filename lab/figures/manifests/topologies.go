// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/univmon/manifest"
)

// topology is a network of the Internet Topology Zoo (topology-zoo.org): links of switches by
// number, parallel ones and switches without links left out.
type topology struct{ name, links string }

// The networks of UnivMon's Figure 14 and Table 2; BellSouth is in both.
var (
	attNorthAmerica = topology{"AT&T North America", "" +
		"0-1 0-2 0-3 0-4 1-3 2-5 2-3 2-6 2-7 2-8 2-9 2-10 2-11 5-12 5-6 5-3 13-14 13-4 14-4 14-12 14-6 14-15 " +
		"14-16 3-4 12-6 12-15 6-15 6-8 6-17 18-19 18-15 18-16 19-20 19-15 19-16 20-21 20-15 15-7 15-8 15-9 " +
		"15-17 7-8 7-9 7-11 8-9 9-22 9-23 9-10 9-11 9-17 22-11 23-10 11-17 17-24 17-21 24-21"}
	geant2012 = topology{"Geant2012", "" +
		"0-1 0-2 0-4 0-30 0-34 1-33 2-4 2-31 2-32 2-35 2-36 2-38 3-4 3-5 3-10 3-19 3-30 4-5 4-6 4-8 4-16 4-17 " +
		"4-29 4-31 5-23 6-7 7-8 7-25 7-34 8-9 8-25 9-15 9-18 9-25 9-29 11-13 12-13 12-14 12-15 12-20 12-22 " +
		"13-14 13-22 15-29 16-34 17-30 21-27 22-23 22-26 22-27 23-29 24-25 24-34 27-28 28-29 30-39 32-34 " +
		"33-34 35-36 36-37 38-39"}
	bellSouth = topology{"Bellsouth", "" +
		"0-48 1-4 2-42 3-50 4-35 4-49 5-46 6-26 6-31 7-48 8-46 9-46 10-15 10-35 10-39 10-46 11-31 11-35 12-31 " +
		"12-35 13-15 14-15 15-16 17-31 17-35 18-31 19-20 20-21 20-31 20-35 22-25 22-31 23-26 24-26 25-31 " +
		"25-35 26-35 26-47 27-28 27-29 27-30 27-31 27-35 31-32 31-34 31-35 31-37 31-38 31-39 31-40 31-43 " +
		"31-49 33-40 34-35 35-40 35-43 35-44 35-48 35-49 36-46 38-44 41-50 42-50 44-45 48-49 49-50"}
	dialTelecom = topology{"Dial Telecom", "" +
		"0-82 0-124 1-2 1-118 1-124 2-3 4-5 4-124 6-7 6-18 7-64 8-60 8-61 9-11 9-13 10-16 11-92 12-68 12-72 " +
		"13-14 13-15 14-72 15-39 16-48 16-49 17-18 18-20 18-23 19-23 21-24 21-106 22-105 22-115 23-97 25-26 " +
		"25-27 26-30 27-102 27-128 28-29 28-31 28-114 29-32 30-125 32-125 33-34 33-37 33-132 35-39 35-122 " +
		"36-39 37-40 38-122 40-122 41-121 42-85 42-121 43-45 43-57 43-63 43-101 44-45 44-56 46-101 47-57 " +
		"47-74 48-49 48-50 48-51 48-56 48-101 50-121 51-100 52-53 52-100 53-54 54-93 55-68 56-100 58-59 58-60 " +
		"58-63 58-64 59-60 59-75 62-63 65-67 65-69 65-120 66-120 66-123 67-123 68-69 70-120 71-99 71-108 " +
		"73-107 74-79 75-78 76-77 76-120 77-78 79-123 80-84 80-97 81-82 82-83 83-84 85-87 86-87 86-88 86-89 " +
		"88-91 90-91 90-92 93-95 94-95 94-96 96-134 97-98 98-134 99-129 99-133 102-107 102-108 102-127 " +
		"103-104 103-105 104-109 105-126 106-126 107-108 107-137 108-109 109-110 111-112 111-126 112-114 " +
		"113-118 115-116 116-119 117-118 118-125 127-128 129-130 130-131 131-132 133-134 134-135 135-136 " +
		"136-137"}
)

// neighbors returns the neighbors of each switch, sorted.
func (y topology) neighbors() (out [][]int, err error) {
	for _, link := range strings.Fields(y.links) {
		var a, b int
		if _, err := fmt.Sscanf(link, "%d-%d", &a, &b); err != nil {
			return nil, fmt.Errorf("network %s: link %s: %w", y.name, link, err)
		}
		for len(out) <= max(a, b) {
			out = append(out, nil)
		}
		out[a], out[b] = append(out[a], b), append(out[b], a)
	}
	for _, n := range out {
		slices.Sort(n)
	}
	return out, nil
}

// problem returns the assignment of dimensions, with sketches of a size in bytes, to the switches
// between all pairs of different switches. A pair has one shortest path, over the lowest numbers.
func (y topology) problem(dimensions, bytes int) (*manifest.Problem, error) {
	neighbors, err := y.neighbors()
	if err != nil {
		return nil, err
	}
	p := &manifest.Problem{}
	for k := range dimensions {
		p.Dimensions = append(p.Dimensions, manifest.Dimension{Name: fmt.Sprint("dimension ", k+1), Bytes: bytes})
	}
	for from := range neighbors {
		p.Switches = append(p.Switches, manifest.Switch{Name: fmt.Sprint(from)})
		before := make([]int, len(neighbors)) // switch before each switch on the path, plus 1
		before[from] = from + 1
		for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
			for _, j := range neighbors[queue[0]] {
				if before[j] == 0 {
					before[j] = queue[0] + 1
					queue = append(queue, j)
				}
			}
		}
		for to := range neighbors {
			if to == from {
				continue
			}
			path := []int{to}
			for at := to; at != from; {
				at = before[at] - 1
				path = append(path, at)
			}
			slices.Reverse(path)
			p.Pairs = append(p.Pairs, manifest.Pair{Origin: from, Destination: to, Paths: [][]int{path}})
		}
	}
	return p, nil
}
