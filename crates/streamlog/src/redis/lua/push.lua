-- KEYS: the session's log, what waits, its index, the name of this push
-- ARGV: me, tag, now, age, most events, most bytes, how many, whether nothing that waits for a reader
--   may make room (then there is one); then kind, subject, payload of each
if redis.call('HEXISTS', KEYS[1], 'gone') == 1 then return {'GONE'} end
local me, tag, now, age = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lost = {}
local stream, number, replica
local newest = string.match(redis.call('HGET', KEYS[1], 'h') or '', '(%S+)$')
if newest then stream, replica, number = string.match(newest, '^(.-):(.-):(.*)$') end
if redis.call('EXISTS', KEYS[4]) == 1 then return {'OK', replica or '', lost} end
expire(KEYS[1], KEYS[2], KEYS[3], me, tag, now - age, lost)
if ARGV[8] == '1' and newest then
  local events, bytes = redis.call('XLEN', KEYS[2]), tonumber(redis.call('HGET', KEYS[1], 'wb') or '0')
  local full = events >= tonumber(ARGV[5]) or bytes + #ARGV[11] + 96 > tonumber(ARGV[6])
  if events > 0 and full then return {'FULL', replica, lost} end
end
redis.call('SET', KEYS[4], '1', 'PX', 60000)
for i = 1, tonumber(ARGV[7]) do
  local k, s, d = ARGV[6 + 3 * i], ARGV[7 + 3 * i], ARGV[8 + 3 * i]
  if k == '2' then
    local before = redis.call('HGET', KEYS[3], s)
    local entry = before and redis.call('XRANGE', KEYS[2], before, before)[1]
    if entry then over(KEYS[1], KEYS[2], KEYS[3], before, fields(entry)) end
  end
  local name = string.format('%d-1', redis.call('HINCRBY', KEYS[1], 'wn', 1))
  redis.call('XADD', KEYS[2], name, 'k', k, 's', s, 't', ARGV[3], 'r', me, 'd', d)
  redis.call('HINCRBY', KEYS[1], 'wb', #d + 96)
  if k == '2' then redis.call('HSET', KEYS[3], s, name) end
end
local events, bytes = redis.call('XLEN', KEYS[2]), tonumber(redis.call('HGET', KEYS[1], 'wb') or '0')
local function fits() return events <= 1 or (events <= tonumber(ARGV[5]) and bytes <= tonumber(ARGV[6])) end
for _, logs in ipairs({true, false}) do
  if not fits() then
    for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '-', '+')) do
      local e = fields(entry)
      if not fits() then
        if (e.k == '1') == logs then
          drop(KEYS[1], KEYS[2], KEYS[3], entry, me, tag, lost)
          events, bytes = events - 1, bytes - #e.d - 96
        end
      end
    end
  end
end
redis.call('PEXPIRE', KEYS[1], 90000000)
redis.call('PEXPIRE', KEYS[2], 2 * age)
redis.call('PEXPIRE', KEYS[3], 2 * age)
if replica and replica ~= me then
  redis.call('PUBLISH', 'vestibule:r:' .. replica, 'W ' .. tag .. ' ' .. stream .. ' ' .. number .. ' ' .. me)
end
return {'OK', replica or '', lost}
