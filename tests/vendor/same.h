/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two declarations are the same to a caller of the compiled code. C++17. */
#ifndef VENDOR_SAME_H
#define VENDOR_SAME_H

#include <type_traits>

/*
 * Names of types may differ, and so may enum and int, or long and long long. What has to be equal:
 * how many parameters there are, of which kind and size each is, and what pointers point to.
 */
template <class A, class B> constexpr bool same_value();

template <class A, class B> constexpr bool same_pointee()
{
    if constexpr (std::is_const_v<A> != std::is_const_v<B>) {
        return false;
    } else if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
        return std::is_void_v<A> == std::is_void_v<B>;
    } else if constexpr (std::is_pointer_v<A> != std::is_pointer_v<B>) {
        return false;
    } else if constexpr (std::is_same_v<std::remove_const_t<A>, std::remove_const_t<B>>) {
        return true; /* structs that neither side shows */
    } else if constexpr (std::is_class_v<A> && std::is_class_v<B>) {
        return sizeof(A) >= sizeof(B); /* ours may go on: its fields are compared elsewhere */
    } else {
        return same_value<std::remove_const_t<A>, std::remove_const_t<B>>();
    }
}

template <class A> constexpr bool is_number()
{
    return std::is_integral_v<A> || std::is_enum_v<A>;
}

template <class A, class B> constexpr bool same_value()
{
    if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
        return std::is_void_v<A> == std::is_void_v<B>;
    } else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
        return same_pointee<std::remove_pointer_t<A>, std::remove_pointer_t<B>>();
    } else {
        return sizeof(A) == sizeof(B) && is_number<A>() == is_number<B>() &&
               std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
               std::is_class_v<A> == std::is_class_v<B>;
    }
}

template <class A, class B> struct signatures;

template <class RA, class... A, class RB, class... B>
struct signatures<RA (*)(A...), RB (*)(B...)> {
    static constexpr bool are_same()
    {
        if constexpr (sizeof...(A) != sizeof...(B)) {
            return false;
        } else {
            return same_value<RA, RB>() && (same_value<A, B>() && ...);
        }
    }
};

#endif /* VENDOR_SAME_H */
