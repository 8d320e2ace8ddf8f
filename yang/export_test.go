// SPDX-License-Identifier: Apache-2.0

package yang

import goyang "github.com/openconfig/goyang/pkg/yang"

func yangType(pattern string) *goyang.YangType { return &goyang.YangType{Pattern: []string{pattern}} }
